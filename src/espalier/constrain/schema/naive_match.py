"""Whether one short text is among a pattern's texts, by trying every way to split it.

For property names in a schema and for tests: slow, and without an automaton.
"""

from __future__ import annotations

from espalier.constrain.pattern import (
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
)


def matches(pattern: Pattern, text: str) -> bool:
    """The text is one of the pattern's."""
    return len(text) in _Ends(text).of(pattern, 0)


class _Ends:
    """Where texts of patterns can end inside one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[tuple[int, int], frozenset[int]] = {}

    def of(self, pattern: Pattern, start: int) -> frozenset[int]:
        key = id(pattern), start
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = frozenset(self._find(pattern, start))
        return found

    def _find(self, pattern: Pattern, start: int) -> set[int] | frozenset[int]:
        text = self._text
        if isinstance(pattern, Literal):
            end = start + len(pattern.text)
            return {end} if text.startswith(pattern.text, start) else set()
        if isinstance(pattern, CharClass):
            code = ord(text[start]) if start < len(text) else -1
            inside = any(low <= code <= high for low, high in pattern.ranges)
            return {start + 1} if inside else set()
        if isinstance(pattern, Concat):
            ends = {start}
            for part in pattern.parts:
                ends = {end for middle in ends for end in self.of(part, middle)}
            return ends
        if isinstance(pattern, Alternation):
            return {end for option in pattern.options for end in self.of(option, start)}
        if isinstance(pattern, Repeat):
            return self._repeated(pattern, start)
        left, right = self.of(pattern.left, start), self.of(pattern.right, start)
        return left & right if isinstance(pattern, Both) else left - right

    def _repeated(self, pattern: Repeat, start: int) -> set[int]:
        ends = {start}
        for _ in range(pattern.low):
            following = {end for middle in ends for end in self.of(pattern.inner, middle)}
            if following == ends:
                break
            ends = following
        found, newest, rounds = set(ends), ends, pattern.low
        while newest and (pattern.high is None or rounds < pattern.high):
            rounds += 1
            newest = {end for middle in newest for end in self.of(pattern.inner, middle)} - found
            found |= newest
        return found
