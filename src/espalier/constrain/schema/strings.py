"""Sets of strings: what string keywords say together. Knows no JSON text."""

from __future__ import annotations

from dataclasses import dataclass, replace

from espalier.constrain.pattern import (
    ANY_CHARACTER,
    ANY_TEXT,
    Alternation,
    Literal,
    Pattern,
    Repeat,
)
from espalier.constrain.schema.construct import both, without
from espalier.constrain.schema.json_text import quoted
from espalier.constrain.schema.texts import Texts


@dataclass(frozen=True, slots=True)
class Strings:
    """Strings that satisfy all of what is set.

    Attributes:
        min_length, max_length: in code points; `max_length` None for no bound.
        patterns, non_patterns: patterns that must, or must not, have the string.
        values: the only strings allowed, None for no such limit.
        excluded: strings that are not allowed.
    """

    min_length: int = 0
    max_length: int | None = None
    patterns: tuple[Texts, ...] = ()
    non_patterns: tuple[Texts, ...] = ()
    values: tuple[str, ...] | None = None
    excluded: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Plainly no string satisfies it."""
        if self.values is not None:
            return not self.values
        return self.max_length is not None and self.max_length < self.min_length

    @property
    def is_free(self) -> bool:
        """Nothing but a length is asked."""
        return (
            self.values is None
            and not self.patterns
            and not self.non_patterns
            and not self.excluded
        )

    def has(self, text: str) -> bool:
        """The string satisfies everything but `values`."""
        if len(text) < self.min_length or text in self.excluded:
            return False
        if self.max_length is not None and len(text) > self.max_length:
            return False
        return all(texts.has(text) for texts in self.patterns) and not any(
            texts.has(text) for texts in self.non_patterns
        )

    def meet(self, other: Strings) -> Strings:
        """Strings of both."""
        if other == ANY_STRING:
            return self
        if self == ANY_STRING:
            return other
        highs = [high for high in (self.max_length, other.max_length) if high is not None]
        values = self.values
        if values is None:
            values = other.values
        elif other.values is not None:
            values = tuple(text for text in values if text in set(other.values))
        met = Strings(
            max(self.min_length, other.min_length),
            min(highs, default=None),
            tuple(dict.fromkeys(self.patterns + other.patterns)),
            tuple(dict.fromkeys(self.non_patterns + other.non_patterns)),
            values,
            self.excluded | other.excluded,
        )
        if values:
            met = replace(met, values=tuple(text for text in values if met.has(text)))
        return met

    @property
    def texts(self) -> Pattern:
        """The strings as a pattern of themselves."""
        if self.values is not None:
            return Alternation(tuple(Literal(text) for text in self.values))
        has_bounds = self.min_length > 0 or self.max_length is not None
        found: Pattern = (
            Repeat(ANY_CHARACTER, self.min_length, self.max_length) if has_bounds else ANY_TEXT
        )
        if self.patterns:
            first = self.patterns[0].pattern
            found = first if not has_bounds else both(first, found)
            for texts in self.patterns[1:]:
                found = both(found, texts.pattern)
        for texts in self.non_patterns:
            found = without(found, texts.pattern)
        if self.excluded:
            found = without(found, Alternation(tuple(map(Literal, sorted(self.excluded)))))
        return found

    @property
    def quoted(self) -> Pattern:
        """The strings as canonical JSON texts."""
        is_one = len(self.patterns) == 1 and self == Strings(patterns=self.patterns)
        return self.patterns[0].quoted if is_one else quoted(self.texts)


ANY_STRING = Strings()
