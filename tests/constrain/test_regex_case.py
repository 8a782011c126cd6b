"""Case is folded as `re` does it, for every code point."""

from __future__ import annotations

import random
import re

from espalier.constrain.regex_case import cases_of

EVERYTHING = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))
CASED = "".join(one for one in EVERYTHING if one.lower() != one or one.upper() != one)


def found(character: str, ascii_only: bool) -> set[str]:
    ranges = cases_of(character, ascii_only)
    return {chr(code) for low, high in ranges for code in range(low, high + 1)}


def test_cased_characters_have_the_cases_of_re() -> None:
    assert len(CASED) > 2_700
    for character in CASED:
        expression = re.compile(re.escape(character), re.IGNORECASE)
        assert found(character, False) == set(expression.findall(CASED)), character


def test_other_characters_match_themselves_alone() -> None:
    cased = frozenset(CASED)
    others = "".join(one for one in EVERYTHING if one not in cased)
    assert all(found(character, False) == {character} for character in others[::97])
    # And `re` has no case for them.
    for character in random.Random(3).sample(others, 150):
        expression = re.compile(re.escape(character), re.IGNORECASE)
        assert expression.findall(EVERYTHING) == [character]


def test_ascii_case_has_ascii_letters_only() -> None:
    for character in map(chr, range(0x180)):
        expression = re.compile(re.escape(character), re.IGNORECASE | re.ASCII)
        assert found(character, True) == set(expression.findall(EVERYTHING[:0x3000]))
    assert found("k", True) == {"k", "K"}
    assert found("k", False) == {"k", "K", "\u212a"}
