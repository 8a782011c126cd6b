"""Simplified patterns have the texts of the plain ones; membership is the definition."""

from __future__ import annotations

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.constrain.code_points import code_points, complement, includes, num_characters
from espalier.constrain.membership import is_member
from espalier.constrain.pattern import (
    ANY_CHARACTER,
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)
from espalier.constrain.simplified import alternation, char_class, concat, repeat

Pair = tuple[Pattern, Pattern]  # plain, simplified
NO_TEXT = r"[^\s\S]"
TEXTS = ["".join(text) for length in range(5) for text in product("ab", repeat=length)]


def leaf(pattern: object) -> Pair:
    if isinstance(pattern, CharClass):
        return pattern, char_class(pattern.ranges)
    assert isinstance(pattern, (Literal, Alternation))
    return pattern, pattern


PAIRS: st.SearchStrategy[Pair] = st.recursive(
    st.sampled_from(
        [EMPTY, NOTHING, Literal("a"), Literal("ba"), CharClass(((97, 98),)), CharClass(())]
    ).map(leaf),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(
            lambda pairs: (
                Concat(tuple(one for one, _ in pairs)),
                concat([two for _, two in pairs]),
            )
        ),
        st.lists(inner, max_size=3).map(
            lambda pairs: (
                Alternation(tuple(one for one, _ in pairs)),
                alternation([two for _, two in pairs]),
            )
        ),
        st.tuples(inner, st.integers(0, 3), st.sampled_from([0, 1, 2, None])).map(
            lambda drawn: (
                Repeat(drawn[0][0], drawn[1], _high(drawn[1], drawn[2])),
                repeat(drawn[0][1], drawn[1], _high(drawn[1], drawn[2])),
            )
        ),
    ),
    max_leaves=8,
)


def _high(low: int, more: int | None) -> int | None:
    return None if more is None else low + more


@given(PAIRS)
def test_simplified_has_the_texts_of_the_plain_pattern(pair: Pair) -> None:
    plain, simple = pair
    assert [is_member(plain, text) for text in TEXTS] == [is_member(simple, text) for text in TEXTS]


def plain_regex(pattern: Pattern) -> str:
    """A pattern as a regular expression, one construct for one."""
    if isinstance(pattern, Literal):
        return f"(?:{re.escape(pattern.text)})"
    if isinstance(pattern, CharClass):
        return "[ab]" if pattern.ranges else NO_TEXT
    if isinstance(pattern, Concat):
        return f"(?:{''.join(map(plain_regex, pattern.parts))})"
    if isinstance(pattern, Alternation):
        return f"(?:{'|'.join(map(plain_regex, pattern.options)) or NO_TEXT})"
    assert isinstance(pattern, Repeat)
    high = "" if pattern.high is None else pattern.high
    return f"(?:{plain_regex(pattern.inner)}{{{pattern.low},{high}}})"


@given(PAIRS)
def test_membership_is_what_fullmatch_says(pair: Pair) -> None:
    expression = re.compile(plain_regex(pair[0]))
    for text in TEXTS:
        assert is_member(pair[0], text) == bool(expression.fullmatch(text))


def test_membership_of_intersections_and_differences() -> None:
    starts, ends = Concat((Literal("a"), ANY_TEXT)), Concat((ANY_TEXT, Literal("b")))
    for text in TEXTS:
        begins_so, ends_so = text.startswith("a"), text.endswith("b")
        assert is_member(Both(starts, ends), text) == (begins_so and ends_so)
        assert is_member(Without(starts, ends), text) == (begins_so and not ends_so)


def test_order_of_few_characters_is_kept_and_many_become_a_class() -> None:
    letters = [Literal(letter) for letter in "cab"]
    assert alternation(letters) == Alternation((Literal("c"), CharClass(((97, 98),))))
    assert alternation([ANY_CHARACTER, Literal("a")]) == ANY_CHARACTER


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], ()),
        ([(5, 6), (1, 2)], ((1, 2), (5, 6))),
        ([(1, 4), (2, 3), (5, 9)], ((1, 9),)),
        ([(0xD000, 0xF000)], ((0xD000, 0xD7FF), (0xE000, 0xF000))),
        ([(0xD800, 0xDFFF)], ()),
        ([(0xDABC, 0xE001), (1, 1)], ((1, 1), (0xE000, 0xE001))),
    ],
)
def test_code_points_are_sorted_disjoint_and_no_surrogates(
    ranges: list[tuple[int, int]], expected: tuple[tuple[int, int], ...]
) -> None:
    assert code_points(ranges) == expected
    assert complement(complement(expected)) == expected
    assert num_characters(expected) + num_characters(complement(expected)) == 0x110000 - 2048
    for code in (0, 1, 2, 3, 5, 9, 10, 0xD7FF, 0xE000, 0x10FFFF):
        assert includes(expected, code) != includes(complement(expected), code)
