"""Sets of characters as ranges of code points: the algebra behind character classes.

Knows no syntax. Surrogates are no characters: they are in no set that is made here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from espalier.constrain.pattern import CodePoints

MAX_CODE_POINT = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)


def code_points(ranges: Iterable[tuple[int, int]]) -> CodePoints:
    """The characters of any inclusive ranges: sorted, disjoint, not adjacent, no surrogates."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            if last > merged[-1][1]:
                merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    if merged and merged[-1][1] >= _SURROGATES[0]:
        return tuple(_without_surrogates(merged))
    return tuple(merged)


def complement(ranges: CodePoints) -> CodePoints:
    """All other characters."""
    gaps: list[tuple[int, int]] = []
    start = 0
    for first, last in ranges:
        if first > start:
            gaps.append((start, first - 1))
        start = last + 1
    if start <= MAX_CODE_POINT:
        gaps.append((start, MAX_CODE_POINT))
    return tuple(_without_surrogates(gaps))


def includes(ranges: CodePoints, code_point: int) -> bool:
    """Whether one character is in a set."""
    index = bisect_right(ranges, (code_point, MAX_CODE_POINT))
    return index > 0 and code_point <= ranges[index - 1][1]


def num_characters(ranges: CodePoints) -> int:
    """How many characters a set has."""
    return sum(last - first + 1 for first, last in ranges)


def _without_surrogates(ranges: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    low, high = _SURROGATES
    for first, last in ranges:
        if last < low or first > high:
            yield first, last
            continue
        if first < low:
            yield first, low - 1
        if last > high:
            yield high + 1, last
