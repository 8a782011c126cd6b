"""Classes are those of `re`, at every code point."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from espalier.constrain.pattern import CharClass, CodePoints, Literal, Pattern
from espalier.constrain.regex_parser import parse_regex

EVERYTHING = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000)]))


def characters(pattern: Pattern) -> str:
    if isinstance(pattern, Literal):
        return pattern.text
    assert isinstance(pattern, CharClass)
    return "".join(chr(code) for low, high in pattern.ranges for code in range(low, high + 1))


def assert_canonical(ranges: CodePoints) -> None:
    for (_, last), (first, _) in pairwise(ranges):
        assert first > last + 1 or (last, first) == (0xD7FF, 0xE000)
    assert all(first <= last for first, last in ranges)


@pytest.mark.parametrize("flags", ["", "(?a)", "(?i)", "(?ai)", "(?s)"])
@pytest.mark.parametrize("escape", [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", "."])
def test_category_has_the_characters_of_re(escape: str, flags: str) -> None:
    pattern = parse_regex(flags + escape)
    assert characters(pattern) == "".join(re.findall(flags + escape, EVERYTHING))


@pytest.mark.parametrize("flags", ["", "(?a)", "(?i)", "(?ai)"])
@pytest.mark.parametrize(
    "text",
    [
        "[a-c]",
        "[^a-c]",
        r"[\da-fA-F_]",
        r"[^\W\d_]",
        r"[\w\s]",
        r"[\S\n]",
        "[ks]",
        "[^ik]",
        "[Q-q]",
        "[\u0130\u017f]",
        "[\xdf\u1e9e]",
        "[\xb5-\u03c9]",
        "[^\u0390\ufb05]",
        r"[\x00-\xff]",
        r"[\u0100-\uffff]",
        r"[^\ud7ff-\ue000]",
        "[\u10a0-\u10ff\u2d00-\u2d2f]",
    ],
)
def test_class_has_the_characters_of_re(text: str, flags: str) -> None:
    pattern = parse_regex(flags + text)
    assert characters(pattern) == "".join(re.findall(flags + text, EVERYTHING))
    if isinstance(pattern, CharClass):
        assert_canonical(pattern.ranges)


# Without (?ai): there `re` folds the case of letters outside of ASCII, see docs/regex.md.
@pytest.mark.parametrize("flags", ["", "(?a)", "(?i)"])
@pytest.mark.parametrize(
    "text", ["[\U00010400-\U00010427]", "[\U0001e900-\U0010ffffx]", "[^\U00010400]"]
)
def test_class_beyond_the_basic_plane_has_the_characters_of_re(text: str, flags: str) -> None:
    pattern = parse_regex(flags + text)
    assert characters(pattern) == "".join(re.findall(flags + text, EVERYTHING))


def test_capital_beyond_the_basic_plane_matches_itself_in_a_class() -> None:
    # For `re` (3.10 to 3.13) this class has neither case of the letter, by a fault of its tables.
    assert characters(parse_regex("(?i)[\U00010400a]")) == "Aa\U00010400\U00010428"
    assert characters(parse_regex("(?ai)[\U00010400a]")) == "Aa\U00010400"
