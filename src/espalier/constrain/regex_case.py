"""Letters that a case-insensitive regular expression takes for the same, by the rules of `re`.

Two characters are the same where `re` says so: their lower-case forms are one, or these have one
upper-case form between them (k, K and the Kelvin sign; i, I and both Turkish ones).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import lru_cache

from espalier.constrain.code_points import code_points
from espalier.constrain.pattern import CodePoints

# The scripts that have case end well before; the test walks all code points.
_END_OF_CASE = 0x20000
_BLOCK = 128


def cases_of(character: str, ascii_only: bool) -> CodePoints:
    """The characters that match a character, itself among them."""
    return with_other_cases(((ord(character), ord(character)),), ascii_only)


def with_other_cases(ranges: CodePoints, ascii_only: bool) -> CodePoints:
    """The characters that match any character of some ranges, these among them."""
    cased, others = _ascii_case() if ascii_only else _unicode_case()
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        members = cased[bisect_left(cased, first) : bisect_right(cased, last)]
        found.extend((other, other) for member in members for other in others[member])
    return code_points((*ranges, *found)) if found else ranges


_Case = tuple[list[int], dict[int, tuple[int, ...]]]  # sorted; what is the same as each, with it


@lru_cache(maxsize=1)
def _ascii_case() -> _Case:
    others: dict[int, tuple[int, ...]] = {}
    for upper in range(ord("A"), ord("Z") + 1):
        others[upper] = others[upper + 32] = (upper, upper + 32)
    return sorted(others), others


@lru_cache(maxsize=1)
def _unicode_case() -> _Case:
    characters = _cased_characters()
    by_upper: dict[str, set[str]] = {}  # lower-case forms of what has one upper-case form
    for character in characters:
        by_upper.setdefault(character.upper(), set()).add(_lower(character))
    leader = {
        lower: min(lowers) for lowers in by_upper.values() if len(lowers) > 1 for lower in lowers
    }
    groups: dict[str, list[int]] = {}
    for character in characters:
        lower = _lower(character)
        groups.setdefault(leader.get(lower, lower), []).append(ord(character))
    others = {member: tuple(group) for group in groups.values() for member in group}
    return sorted(others), others


def _lower(character: str) -> str:
    return character.lower()[0]  # the dotted capital I has a lower-case form of two characters


def _cased_characters() -> list[str]:
    """Characters with another case, in order."""
    found: list[str] = []
    for start in range(0, _END_OF_CASE, _BLOCK):
        block = "".join(map(chr, range(start, start + _BLOCK)))
        if block.lower() != block or block.upper() != block:
            found.extend(one for one in block if one.lower() != one or one.upper() != one)
    return found
