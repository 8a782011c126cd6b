"""Whether a text is one of a pattern, by the definition of patterns: slow, and plainly right.

For short texts, and as the judge in tests.
"""

from __future__ import annotations

from espalier.constrain.code_points import includes
from espalier.constrain.pattern import (
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
)


def is_member(pattern: Pattern, text: str) -> bool:
    """Whether `text` as a whole is one of the pattern's texts.

    Time grows with the square of the text's length, times the size of the pattern.
    """
    return len(text) in _Ends(text).of(pattern, 0)


class _Ends:
    """Where the texts of patterns end that begin at places of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        # Keyed by identity: hashing a pattern would walk it. The patterns outlive this object.
        self._known: dict[tuple[int, int], frozenset[int]] = {}

    def of(self, pattern: Pattern, start: int) -> frozenset[int]:
        key = (id(pattern), start)
        if key not in self._known:
            self._known[key] = self._find(pattern, start)
        return self._known[key]

    def _find(self, pattern: Pattern, start: int) -> frozenset[int]:
        if isinstance(pattern, Literal):
            found = self._text.startswith(pattern.text, start)
            return frozenset((start + len(pattern.text),)) if found else frozenset()
        if isinstance(pattern, CharClass):
            found = start < len(self._text) and includes(pattern.ranges, ord(self._text[start]))
            return frozenset((start + 1,)) if found else frozenset()
        if isinstance(pattern, Concat):
            places = frozenset((start,))
            for part in pattern.parts:
                places = self._after(part, places)
            return places
        if isinstance(pattern, Alternation):
            return frozenset().union(*(self.of(option, start) for option in pattern.options))
        if isinstance(pattern, Repeat):
            return self._repeated(pattern, start)
        left, right = self.of(pattern.left, start), self.of(pattern.right, start)
        return left & right if isinstance(pattern, Both) else left - right

    def _after(self, pattern: Pattern, starts: frozenset[int]) -> frozenset[int]:
        return frozenset(end for start in starts for end in self.of(pattern, start))

    def _repeated(self, pattern: Repeat, start: int) -> frozenset[int]:
        places = frozenset((start,))
        for _ in range(pattern.low):
            after = self._after(pattern.inner, places)
            if after == places:
                break  # it would not change any more
            places = after
        found = places
        more = 0
        while places and (pattern.high is None or more < pattern.high - pattern.low):
            places = self._after(pattern.inner, places) - found
            found |= places
            more += 1
        return found
