"""Texts of finite patterns, against trying every short text."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.constrain.finite_language import choices_pattern, finite_language
from espalier.constrain.membership import is_member
from espalier.constrain.pattern import (
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
from espalier.constrain.regex_parser import parse_regex
from espalier.errors import UserInputError


@pytest.mark.parametrize(
    ("regex", "texts"),
    [
        ("", ("",)),
        ("b|a|b", ("b", "a")),
        ("Excellent|Above Average|Fair", ("Excellent", "Above Average", "Fair")),
        ("^(?:yes|no)$", ("yes", "no")),
        ("x[b-d]?", ("x", "xb", "xc", "xd")),
        ("(?:a|ab)(?:c|bc)", ("ac", "abc", "abbc")),
        ("a{2,4}", ("aa", "aaa", "aaaa")),
        ("(?:a|b){2}", ("aa", "ab", "ba", "bb")),
        ("(?i)no", ("NO", "No", "nO", "no")),
        ("(?:a?){3}", ("", "a", "aa", "aaa")),
        ("a^b", ()),
        ("(?:[^\\s\\S])*x", ("x",)),
        ("[0-9]{2}", None),
        ("a*", None),
        ("a*[^\\s\\S]", ()),
        ("a{65000}", ("a" * 65_000,)),
        ("(?:a{65000}){2}", None),
        ("(?:a{60000}){60000}", None),
        ("(?:a|b){60000}", None),
        ("(?:a|b){0}", ("",)),
    ],
)
def test_finite_language_of_a_regex(regex: str, texts: tuple[str, ...] | None) -> None:
    assert finite_language(parse_regex(regex), 64) == texts


def test_limit_is_the_largest_number_of_texts() -> None:
    pattern = parse_regex("[a-h][a-h]")
    assert finite_language(pattern, 63) is None
    texts = finite_language(pattern, 64)
    assert texts == tuple(first + second for first, second in product("abcdefgh", repeat=2))


def test_intersection_and_difference_are_listed_from_the_finite_side() -> None:
    letters = parse_regex("[a-c]*")
    assert finite_language(Both(letters, parse_regex("ax|ab|c")), 64) == ("ab", "c")
    assert finite_language(Both(parse_regex("ax|ab|c"), letters), 64) == ("ab", "c")
    assert finite_language(Without(parse_regex("ax|ab|c"), letters), 64) == ("ax",)
    assert finite_language(Without(letters, letters), 64) is None


PATTERNS = st.recursive(
    st.sampled_from(
        [EMPTY, NOTHING, Literal("a"), Literal("ab"), CharClass(((97, 98),)), CharClass(())]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: Concat(tuple(parts))),
        st.lists(inner, max_size=3).map(lambda options: Alternation(tuple(options))),
        st.builds(Repeat, inner, st.just(0), st.sampled_from([0, 1, 2])),
        st.builds(Repeat, inner, st.just(2), st.sampled_from([2, 3, None])),
        st.builds(Both, inner, inner),
        st.builds(Without, inner, inner),
    ),
    max_leaves=6,
)


@given(PATTERNS)
def test_finite_language_has_the_members_and_no_others(pattern: Pattern) -> None:
    texts = finite_language(pattern, 20)
    members = {
        text
        for length in range(5)
        for text in map("".join, product("ab", repeat=length))
        if is_member(pattern, text)
    }
    if texts is None:
        return
    assert len(set(texts)) == len(texts)
    assert {text for text in texts if len(text) < 5} == members
    assert all(is_member(pattern, text) for text in texts)


def test_choices_are_the_texts_in_their_order() -> None:
    texts = ["b", "a.b", "", "a", "b", "\U0001f600"]
    pattern = choices_pattern(texts)
    assert finite_language(pattern, 64) == ("b", "a.b", "", "a", "\U0001f600")
    assert not is_member(pattern, "axb")
    assert choices_pattern(["one"]) == Literal("one")


@pytest.mark.parametrize(
    ("texts", "message"),
    [([], "at least one text"), (["a", 3], "A choice is 3"), (["\ud83d"], "half of a surrogate")],
)
def test_bad_choices_are_refused(texts: list[str], message: str) -> None:
    with pytest.raises(UserInputError, match=message):
        choices_pattern(texts)


def test_any_text_is_not_finite() -> None:
    assert finite_language(ANY_TEXT, 64) is None
