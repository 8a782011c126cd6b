"""Expressions of JSON Schema's dialect: against Python's `re.search` and by table."""

from __future__ import annotations

import re

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from espalier.constrain.membership import is_member
from espalier.constrain.schema.ecma_regex import parse_ecma_regex
from espalier.errors import UserInputError

_atoms = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", "ab", "^", "$", "(?=a)", "(?!b)", "a{1,2}"]
)
_expressions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda one: f"(?:{one})*"),
        inner.map(lambda one: f"({one})?"),
    ),
    max_leaves=7,
)


@settings(max_examples=500, deadline=None)
@given(source=_expressions, texts=st.lists(st.text(alphabet="abc", max_size=5), min_size=8))
def test_found_as_python_finds_it(source: str, texts: list[str]) -> None:
    try:
        pattern = parse_ecma_regex(source)
    except UserInputError as refused:
        event("refused")
        if "inside a repetition" not in str(refused) and "too many" not in str(refused):
            raise
        return
    for text in texts:
        # `$` of Python also stands before a final line end; there is none in these texts.
        assert is_member(pattern, text) == (re.search(source, text) is not None), (source, text)


TABLE = [
    (r"^\d+$", ["1", "90"], ["", "1a", "١"]),
    (r"^\w$", ["a", "_", "7"], ["é", "-"]),
    (r"^\s$", [" ", "\t", "\ufeff", "\u2028", "\u3000"], ["", "a", "\x1c"]),
    (r"^\S$", ["a", "\x1c"], [" ", "\ufeff"]),
    (r"^\W$", ["é"], ["a"]),
    ("a$", ["a", "ba"], ["a\n", "ab"]),
    ("^a.b$", ["axb"], ["a\nb", "a\rb", "a\u2028b"]),
    ("^a|b$", ["ax", "xb"], ["xbx", "xa"]),
    (r"^\/\-\.$", ["/-."], ["/-x"]),
    (r"^\u0041\x42\u{1F600}\cA$", ["AB\U0001f600\x01"], ["AB"]),
    (r"^\ud83d\ude00$", ["\U0001f600"], ["x"]),
    (r"^[\]\\-]$", ["]", "\\", "-"], ["a"]),
    (r"^[^]$", ["a", "\n"], ["", "ab"]),
    ("^[]$", [], ["", "a"]),
    (r"^[\b]$", ["\x08"], ["b"]),
    ("^a{2}b{1,}c{0,1}$", ["aab", "aabbc"], ["ab", "aabcc"]),
    ("^x{a}$", ["x{a}"], ["xa"]),
    ("^(?<name>ab)+?$", ["ab", "abab"], ["a", ""]),
    ("^(?!foo)[a-z]+$", ["fo", "bar"], ["foo", "foobar", ""]),
    (r"^(?=.*\d)(?=.*[a-z]).{2,3}$", ["a1", "1ab"], ["ab", "12", "a123"]),
    (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", ["1", "-0.5", "+7."], ["", "+", ".", "x"]),
    ("foo", ["foo", "a foo b"], ["fo"]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "found", "missed"), TABLE)
def test_dialect(source: str, found: list[str], missed: list[str]) -> None:
    pattern = parse_ecma_regex(source)
    assert [text for text in found if not is_member(pattern, text)] == []
    assert [text for text in missed if is_member(pattern, text)] == []


@pytest.mark.parametrize(
    "source",
    [r"\1", r"\k<a>", r"\b", r"\B", "(?<=a)b", "(?i)a", "(?P<a>b)", "a**", "a{2,1}", "*a", "(",
     ")", "[a", r"[b-a]", r"[\d-x]", "\\", r"\x4", r"\u00", r"\u{110000}", r"\Z", r"\a", "(?:^a)*",
     "(" * 40 + ")" * 40, "a" * 10_001, "(?=a)*", "^*"],
)  # fmt: skip
def test_refused(source: str) -> None:
    with pytest.raises(UserInputError):
        parse_ecma_regex(source)
