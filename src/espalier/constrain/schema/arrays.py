"""Sets of arrays: what array keywords say together, element by element. Builds no text."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

from espalier.constrain.schema.node import NEVER, Goal, joined


@dataclass(frozen=True, slots=True)
class Some:
    """Among the elements from index `start` on, `low` to `high` satisfy a goal."""

    goal: Goal
    low: int = 1
    high: int | None = None
    start: int = 0


@dataclass(frozen=True, slots=True)
class Arrays:
    """Arrays that satisfy all of what is set.

    Attributes:
        prefix: goals of the first elements, where there are such elements.
        rest: goal of every later one.
        low, high: bounds of the length; `high` None for none.
        some: how many elements satisfy further goals.
        unique: no two elements are equal.
    """

    prefix: tuple[Goal, ...] = ()
    rest: Goal = ()
    low: int = 0
    high: int | None = None
    some: tuple[Some, ...] = ()
    unique: bool = False

    @property
    def is_empty(self) -> bool:
        """Plainly no array satisfies it."""
        most = self.most
        if most is not None and most < max(self.low, 0):
            return True
        return any(item.high is not None and item.high < item.low for item in self.some)

    @property
    def most(self) -> int | None:
        """No array has more elements."""
        high = self.high
        if self.rest == NEVER and (high is None or high > len(self.prefix)):
            high = len(self.prefix)
        for index, goal in enumerate(self.prefix):
            if goal == NEVER and (high is None or index < high):
                return index
        return high

    def goal_at(self, index: int) -> Goal:
        """What the element at an index must satisfy."""
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def meet(self, other: Arrays) -> Arrays:
        """Arrays of both."""
        if other == ANY_ARRAY:
            return self
        if self == ANY_ARRAY:
            return other
        highs = [high for high in (self.high, other.high) if high is not None]
        prefix = tuple(
            joined(self.rest if left is None else left, other.rest if right is None else right)
            for left, right in zip_longest(self.prefix, other.prefix)
        )
        return Arrays(
            prefix,
            joined(self.rest, other.rest),
            max(self.low, other.low),
            min(highs, default=None),
            tuple(dict.fromkeys(self.some + other.some)),
            self.unique or other.unique,
        )


ANY_ARRAY = Arrays()
