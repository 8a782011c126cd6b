"""Sets of objects: what object keywords say together, name by name. Builds no text."""

from __future__ import annotations

from dataclasses import dataclass

from espalier.constrain.schema.node import Goal, joined
from espalier.constrain.schema.texts import Texts


@dataclass(frozen=True, slots=True)
class Names:
    """Property names: those of a pattern, or all but some names and those of some patterns."""

    pattern: Texts | None = None
    but_names: frozenset[str] = frozenset()
    but_patterns: tuple[Texts, ...] = ()

    def has(self, name: str) -> bool:
        """The name is one of them."""
        if self.pattern is not None:
            return self.pattern.has(name)
        return name not in self.but_names and not any(
            texts.has(name) for texts in self.but_patterns
        )


@dataclass(frozen=True, slots=True)
class Objects:
    """Objects that satisfy all of what is set.

    Attributes:
        named: goals of the values of single names, in the order that texts have; a name alone
            asks for nothing.
        every: goals of the values of all properties whose name is among some.
        required: names that must be there.
        some: at least one property has a name among some and a value that satisfies a goal.
        low, high: bounds of the number of properties; `high` None for none.
    """

    named: tuple[tuple[str, Goal], ...] = ()
    every: tuple[tuple[Names, Goal], ...] = ()
    required: frozenset[str] = frozenset()
    some: tuple[tuple[Names, Goal], ...] = ()
    low: int = 0
    high: int | None = None

    @property
    def is_empty(self) -> bool:
        """Plainly no object satisfies it."""
        return self.high is not None and self.high < max(self.low, len(self.required))

    def goal_of(self, name: str) -> Goal:
        """What the value of a property must satisfy."""
        goal: Goal = ()
        for other, part in self.named:
            if other == name:
                goal = joined(goal, part)
        for names, part in self.every:
            if names.has(name):
                goal = joined(goal, part)
        return goal

    def meet(self, other: Objects) -> Objects:
        """Objects of both; the names of `self` come first."""
        if other == ANY_OBJECT:
            return self
        if self == ANY_OBJECT:
            return other
        named = dict(self.named)
        for name, goal in other.named:
            named[name] = joined(named[name], goal) if name in named else goal
        highs = [high for high in (self.high, other.high) if high is not None]
        return Objects(
            tuple(named.items()),
            tuple(dict.fromkeys(self.every + other.every)),
            self.required | other.required,
            tuple(dict.fromkeys(self.some + other.some)),
            max(self.low, other.low),
            min(highs, default=None),
        )


ANY_OBJECT = Objects()
NO_OBJECT = Objects(high=-1)
