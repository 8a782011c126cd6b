"""The naive twin of the automaton against Python's own idea of texts."""

from __future__ import annotations

import re
from itertools import product

import pytest
from tests.constrain.pattern_strategies import TINY
from tests.constrain.tiny_vocabulary import allowed

from espalier.constrain.automaton_reference import ReferenceMatcher, can_start, matches
from espalier.constrain.pattern import (
    ANY_TEXT,
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)
from espalier.errors import UserInputError

A, B = Literal("a"), Literal("b")
E_ACUTE = CharClass(((0x61, 0x61), (0xE9, 0xE9)))

SAME = [
    (Concat((A, B)), "ab"),
    (Alternation((Literal("ab"), B, Literal(""))), "ab|b|"),
    (Repeat(Literal("ab"), 1, None), "(ab)+"),
    (Repeat(Alternation((A, Literal(""))), 2, 3), "(a|){2,3}"),
    (Concat((Repeat(E_ACUTE, 0, 2), B)), "[a\u00e9]{0,2}b"),
    (Both(Repeat(A, 2, None), Repeat(A, 0, 3)), "a{2,3}"),
    (Both(Repeat(Alternation((A, B)), 0, None), Concat((ANY_TEXT, B))), "[ab]*b"),
    (Without(Repeat(A, 0, 4), Repeat(Literal("aa"), 0, None)), "a(aa)?"),
    (Without(Repeat(Alternation((A, B)), 0, 3), Concat((ANY_TEXT, A))), "([ab]{0,2}b)?"),
    (Without(A, Literal("")), "a"),
    (Repeat(A, 3, 2), "(?!)"),
    (Alternation(()), "(?!)"),
    (Concat(()), ""),
    (Literal("\ud800"), "(?!)"),
]


@pytest.mark.parametrize(("pattern", "regex"), SAME)
def test_texts_are_those_of_an_equal_regex(pattern: Pattern, regex: str) -> None:
    pieces = ["a", "b", "\u00e9"]
    for length in range(5):
        for text in map("".join, product(pieces, repeat=length)):
            assert matches(pattern, text.encode()) == bool(re.fullmatch(regex, text)), text


@pytest.mark.parametrize(
    "ranges",
    [
        ((0x61, 0x7A),),
        ((0x7F, 0x80), (0x7FF, 0x800), (0xFFFF, 0x10000), (0x10FFFF, 0x10FFFF)),
        ((0xD7FE, 0xE001),),
        ((0xE9, 0x4E2D),),
        ((0x1F5FF, 0x1F64F), (0x3FFFF, 0x40000)),
    ],
)
def test_a_class_has_the_utf8_of_its_characters_only(ranges: tuple[tuple[int, int], ...]) -> None:
    borders = {code + step for pair in ranges for code in pair for step in (-2, -1, 0, 1, 2)}
    for code in sorted(borders & {*range(0xD800), *range(0xE000, 0x110000)}):
        data = chr(code).encode()
        is_inside = any(first <= code <= last for first, last in ranges)
        assert matches(CharClass(ranges), data) == is_inside
        for length in range(len(data)):
            assert not matches(CharClass(ranges), data[:length])
            assert can_start(CharClass(ranges), data[:length]) or not is_inside
    for wrong in (b"\xc0\xb0", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80", b"\xff", b"aa"):
        assert not can_start(CharClass(ranges), wrong)


def test_what_no_text_goes_on_from_is_dead() -> None:
    """The intersection has no text with a second letter, though both sides do."""
    pattern = Both(Alternation((A, Literal("ab"))), Alternation((A, Literal("ac"))))
    assert can_start(pattern, b"a")
    assert not can_start(pattern, b"ab")
    assert not can_start(pattern, b"b")


def test_a_mask_has_the_tokens_after_which_the_text_can_go_on() -> None:
    matcher = ReferenceMatcher(Concat((A, Repeat(B, 0, 1), E_ACUTE)), TINY)
    assert allowed(matcher) == {1, 4, 7}
    assert matcher.forced_bytes() == b"a"
    matcher.accept(4)
    assert allowed(matcher) == {1, 11, 14}
    assert not matcher.is_complete
    matcher.accept(11)
    assert matcher.forced_bytes() == b"\xa9"
    matcher.accept(12)
    assert matcher.must_stop
    assert allowed(matcher) == {0, 23}
    matcher.rollback(2)
    assert allowed(matcher) == {1, 11, 14}
    with pytest.raises(UserInputError):
        matcher.accept(2)


def test_a_pattern_without_texts_is_refused() -> None:
    for pattern in (Alternation(()), Both(A, B), Without(A, ANY_TEXT)):
        with pytest.raises(UserInputError):
            ReferenceMatcher(pattern, TINY)
