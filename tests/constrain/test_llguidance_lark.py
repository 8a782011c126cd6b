"""Lark grammars: masks and forced bytes against every text of the language, and what is refused."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constrain.tiny_vocabulary import TinyTokenizer, allowed

from espalier.constrain.llguidance_lark import MAX_LARK_CHARS, MAX_RULES, lark_grammar
from espalier.constrain.matcher import Matcher
from espalier.errors import CapacityError, EspalierError, UnsupportedError, UserInputError

PIECES = [b"<end>", b"a", b"b", b"(", b")", b"ab", b"((", b"()", b"))", b"", b"(a", b")b",
          b"<tool>", b"<eot>"]  # fmt: skip
CONTROL, ENDS = {12}, {0, 13}
TINY = TinyTokenizer(PIECES, CONTROL, ENDS)
TEXT_IDS = [i for i in range(len(PIECES)) if i not in CONTROL | ENDS and PIECES[i]]
MAX_LEN = 8


def nested(max_len: int) -> set[bytes]:
    """Texts of `start: "(" start? ")"`."""
    return {b"(" * depth + b")" * depth for depth in range(1, max_len // 2 + 1)}


def balanced(max_len: int) -> set[bytes]:
    """Texts of a's between balanced parentheses."""
    found = set()
    for length in range(max_len + 1):
        for letters in product(b"a()", repeat=length):
            depth, lowest = 0, 0
            for letter in letters:
                depth += {40: 1, 41: -1}.get(letter, 0)
                lowest = min(lowest, depth)
            if depth == lowest == 0:
                found.add(bytes(letters))
    return found


def palindromes(max_len: int) -> set[bytes]:
    return {
        bytes(letters)
        for length in range(max_len + 1)
        for letters in product(b"ab", repeat=length)
        if letters == letters[::-1]
    }


LANGUAGES = {
    'start: "(" start? ")"': nested(20),
    'start: item*\nitem: "a" | "(" start ")"': balanced(MAX_LEN + 4),
    'start: "a" start "a" | "b" start "b" | "a"? | "b"': palindromes(MAX_LEN + 6),
    'start: "ab" ("ab" | "aa") "(" ")"': {b"abab()", b"abaa()"},
    'start: A B?\nA: "a"+\nB: "b" "()"': {
        b"a" * count + end for count in range(1, 20) for end in (b"", b"b()")
    },
}


def check_state(matcher: Matcher, texts: set[bytes], data: bytes) -> None:
    """What the matcher answers against the texts that begin with `data`."""
    rest = [text[len(data) :] for text in texts if text.startswith(data)]
    expected = {i for i in TEXT_IDS if any(text.startswith(PIECES[i]) for text in rest)}
    assert allowed(matcher) == expected | (ENDS if b"" in rest else set()), data
    assert matcher.is_complete == (b"" in rest)
    assert matcher.must_stop == (rest == [b""])
    assert matcher.forced_bytes() == common_start(rest)
    assert matcher.is_complete == (b"" in rest)


def common_start(texts: list[bytes]) -> bytes:
    shortest = min(texts, key=len)
    for length in range(len(shortest), 0, -1):
        if all(text.startswith(shortest[:length]) for text in texts):
            return shortest[:length]
    return b""


@pytest.mark.parametrize("lark", list(LANGUAGES))
@settings(max_examples=40, deadline=None)
@given(choices=st.lists(st.integers(-2, 50), max_size=8), asks_forced=st.booleans())
def test_answers_equal_those_of_all_texts(lark: str, choices: list[int], asks_forced: bool) -> None:
    """A walk of allowed tokens (choice >= 0) and rollbacks; the texts are long enough for it."""
    texts = LANGUAGES[lark]
    matcher = lark_grammar(lark, TINY).matcher()
    path: list[int] = []
    for choice in choices:
        if choice < 0:
            count = min(-choice, len(path))
            matcher.rollback(count)
            path = path[: len(path) - count]
        else:
            data = b"".join(PIECES[i] for i in path)
            ids = sorted(
                i
                for i in TEXT_IDS
                if len(data + PIECES[i]) <= MAX_LEN // 2
                and any(text.startswith(data + PIECES[i]) for text in texts)
            )
            if ids:
                path.append(ids[choice % len(ids)])
                matcher.accept(path[-1])
        if asks_forced:
            check_state(matcher, texts, b"".join(PIECES[i] for i in path))
    check_state(matcher, texts, b"".join(PIECES[i] for i in path))


@pytest.mark.parametrize("end", sorted(ENDS))
def test_an_accepted_end_can_be_taken_back(end: int) -> None:
    matcher = lark_grammar('start: "(" start? ")"', TINY).matcher()
    matcher.accept(7)
    matcher.accept(end)
    assert matcher.must_stop
    assert matcher.forced_bytes() == b""
    matcher.rollback(1)
    assert matcher.is_complete
    assert allowed(matcher) == ENDS
    matcher.rollback(1)
    assert allowed(matcher) == {3, 6, 7}


@pytest.mark.parametrize(
    ("lark", "error", "told"),
    [
        ("", UserInputError, "empty"),
        ("start: (", UserInputError, "cannot be used"),
        ("root: 'a'", UserInputError, "cannot be used"),
        ('begin: "a"', UserInputError, "cannot be used"),
        ("start: other", UserInputError, "cannot be used"),
        ('start: "z"', UserInputError, "no text made of this model's tokens"),
        ('start: /a/ <tool> "b"', UnsupportedError, "special token '<tool>"),
        ("start: <[12]>", UnsupportedError, "special token"),
        ('start: x "b"\nx[stop="b"]: /a*/', UnsupportedError, "stop="),
        ('start: x "b"\nx[lazy, max_tokens=3]: /a*/', UnsupportedError, "max_tokens="),
        ("start: x\nx[temperature=0.3]: /a*/", UnsupportedError, "temperature="),
        ('%llguidance {"no_forcing": false}\nstart: "a"', UnsupportedError, "no_forcing"),
        ('start: %json {"not": {}}', UserInputError, "not"),
        ('start: "' + "a" * MAX_LARK_CHARS + '"', CapacityError, str(MAX_LARK_CHARS)),
        ("start: a0\n" + "".join(f"a{i}: a{i + 1}\n" for i in range(MAX_RULES)), CapacityError,
         str(MAX_RULES)),
        ('start: "a"' + ' "a"' * 40_000, UserInputError, "too big"),
        ("start: " + "(" * 5_000 + '"a"' + ")" * 5_000, UserInputError, "nested"),
    ],
)  # fmt: skip
def test_a_grammar_that_cannot_be_used_is_refused(
    lark: str, error: type[EspalierError], told: str
) -> None:
    with pytest.raises(error, match=told) as caught:
        lark_grammar(lark, TINY)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


def test_a_chain_of_rules_as_long_as_allowed_compiles() -> None:
    """Without a stack of its own the compiler would end the process here."""
    count = MAX_RULES - 2
    chain = "".join(f'a{i}: a{i + 1} "b"\n' for i in range(count))
    matcher = lark_grammar(f'start: a0\n{chain}a{count}: "a"', TINY).matcher()
    assert matcher.forced_bytes().startswith(b"abbb")


@pytest.mark.parametrize(
    "lark",
    [
        'start: "<" // <tool>\n',
        "start: /<tool>/",
        "%llguidance {}\nstart: /a[stop=]/ # %llguidance\n",
        'start[capture]: "a" | "[stop=" /(?s:.)/',
        'start: x\nx[suffix="b"]: /a*/',
    ],
)
def test_what_only_looks_refused_is_not(lark: str) -> None:
    pieces = [b"<end>", *(bytes([byte]) for byte in range(128))]
    assert allowed(lark_grammar(lark, TinyTokenizer(pieces, {0}, {0})).matcher())
