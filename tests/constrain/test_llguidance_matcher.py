"""Regex matchers against trying every continuation, on vocabularies of a few tokens."""

from __future__ import annotations

import gc
import re
import weakref
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constrain.library_regex import MAX_REGEX_CHARS, regex_grammar
from tests.constrain.tiny_vocabulary import PIECES, TEXT_IDS, TINY, TinyTokenizer, allowed

from espalier.constrain import llguidance_grammar
from espalier.constrain.llguidance_matcher import LlguidanceMatcher
from espalier.errors import CapacityError, UserInputError


def regex_matcher(
    pattern: str, tokenizer: TinyTokenizer, vocab_size: int | None = None
) -> LlguidanceMatcher:
    return regex_grammar(pattern, tokenizer, vocab_size).matcher()


def matches(pattern: str, data: bytes) -> bool:
    try:
        return re.fullmatch(pattern, data.decode()) is not None
    except UnicodeDecodeError:
        return False


ALPHABET = [b"a", b"b", b"1", b"\xc3", b"\xa9"]


@lru_cache(maxsize=100_000)
def can_become_match(pattern: str, data: bytes, max_more: int) -> bool:
    """Naive: some continuation of at most `max_more` bytes matches."""
    return any(
        matches(pattern, data + b"".join(more))
        for length in range(max_more + 1)
        for more in product(ALPHABET, repeat=length)
    )


def naive_mask(pattern: str, data: bytes, max_more: int) -> set[int]:
    tokens = {
        token_id
        for token_id in TEXT_IDS
        if PIECES[token_id] and can_become_match(pattern, data + PIECES[token_id], max_more)
    }
    return tokens | (set(TINY.eos_ids) if matches(pattern, data) else set())


# Every match can be completed with four more bytes from anywhere inside it.
PATTERNS = [
    "ab", "a", "(ab)+", "a*", "(a|b)*1", "ab|aab1?", "a{2,3}b?", "[^a]b", "(\u00e9|a)+1", "\u00e9",
    "(a|ab)(b|1)", "((a|b){2})*", "aaba", "1?", "", "[ab1]{0,3}", "(aa)*", "\u00e9?a\u00e9?",
    "(?i)A1", "(?:b|ba|bab)1?", "(ab|aba)b",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_mask_equals_trying_every_token(pattern: str) -> None:
    """At the start and after every path of up to three allowed tokens."""
    for path_len in range(3):
        for path in product(TEXT_IDS, repeat=path_len):
            matcher = regex_matcher(pattern, TINY)
            data = b""
            for token_id in path:
                if token_id not in allowed(matcher):
                    break
                matcher.accept(token_id)
                data += PIECES[token_id]
            else:
                check_state(matcher, pattern, data, max_more=4)


def check_state(matcher: LlguidanceMatcher, pattern: str, data: bytes, max_more: int) -> None:
    expected = naive_mask(pattern, data, max_more)
    assert allowed(matcher) == expected, data
    assert matcher.is_complete == matches(pattern, data)
    can_go_on = any(can_become_match(pattern, data + byte, max_more) for byte in ALPHABET)
    assert matcher.must_stop == (matches(pattern, data) and not can_go_on)


REGEXES = st.recursive(
    st.sampled_from(["a", "b", "1", "[ab]", "\u00e9", "ab", "[^1]"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=3,
)


# The longest match, of three letters of two bytes, has five more behind its first.
@settings(max_examples=80, deadline=None)
@given(pattern=REGEXES, choices=st.lists(st.integers(0, 100), min_size=1, max_size=4))
def test_mask_equals_trying_every_token_for_any_regex(pattern: str, choices: list[int]) -> None:
    matcher = regex_matcher(pattern, TINY)
    data = b""
    for choice in choices:
        check_state(matcher, pattern, data, max_more=5)
        text_ids = sorted(allowed(matcher) - TINY.eos_ids)
        if not text_ids:
            break
        token_id = text_ids[choice % len(text_ids)]
        matcher.accept(token_id)
        data += PIECES[token_id]


def test_accept_refuses_what_the_mask_excludes_and_goes_on_unchanged() -> None:
    matcher = regex_matcher("(ab)+", TINY)
    for token_id in (2, 8, 9, 15, 0, 16):
        with pytest.raises(UserInputError, match=f"token {token_id} may not follow"):
            matcher.accept(token_id)
    matcher.accept(4)
    assert matcher.is_complete
    assert not matcher.must_stop
    assert allowed(matcher) == {0, 1, 4, 7, 16}


def test_accepting_an_end_of_text_stops() -> None:
    matcher = regex_matcher("(ab)+", TINY)
    matcher.accept(4)
    matcher.accept(16)
    assert matcher.must_stop
    assert allowed(matcher) == {0, 16}
    assert matcher.forced_bytes() == b""
    with pytest.raises(UserInputError):
        matcher.accept(4)


def test_rollback_restores_the_state_before() -> None:
    matcher = regex_matcher("a{1,2}b1?", TINY)
    masks = [allowed(matcher)]
    for token_id in (1, 4, 3):
        matcher.accept(token_id)
        masks.append(allowed(matcher))
    assert matcher.must_stop
    matcher.rollback(1)
    assert allowed(matcher) == masks[2]
    assert matcher.is_complete
    assert not matcher.must_stop
    matcher.rollback(2)
    assert allowed(matcher) == masks[0]
    with pytest.raises(UserInputError, match="1 tokens cannot be taken back; 0 were"):
        matcher.rollback(1)
    matcher.accept(6)
    assert allowed(matcher) == masks[2]


def test_matchers_of_one_pattern_are_independent() -> None:
    first, second = regex_matcher("(ab)+", TINY), regex_matcher("(ab)+", TINY)
    first.accept(4)
    assert first.is_complete
    assert not second.is_complete
    third = regex_matcher("(ab)+", TINY)
    assert not third.is_complete


def test_mask_has_the_width_of_the_models_logits() -> None:
    matcher = regex_matcher("a", TINY, vocab_size=70)
    assert matcher.mask().shape == (3,)
    assert allowed(matcher) == {1}


def test_a_vocabulary_without_an_end_of_text_works() -> None:
    tokenizer = TinyTokenizer([b"a", b"b"] * 16, control=set(), eos_ids=set())
    matcher = regex_matcher("a?", tokenizer)
    assert matcher.is_complete
    assert matcher.mask().shape == (1,)
    assert allowed(matcher) == set(range(0, 32, 2))
    matcher.accept(2)
    assert matcher.must_stop
    assert allowed(matcher) == set()


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("a{3", "unclosed counted repetition"),
        ("(a", "unclosed group"),
        ("a(?=b)", "look-around"),
        (r"(a)\1", "backreferences are not supported"),
        (r"\bab", "lookarounds not supported"),
        ("[^\\s\\S]", "no text made of this model's tokens"),
        ("z", "no text made of this model's tokens"),
        ("a" * (MAX_REGEX_CHARS + 1), "at most 16384"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str, told: str) -> None:
    with pytest.raises(UserInputError, match=re.escape(told)) as caught:
        regex_matcher(pattern, TINY)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


def test_a_slash_and_a_newline_are_plain_characters() -> None:
    tokenizer = TinyTokenizer([b"<end>", b"/", b"\n", b"\\", b'"'], {0}, {0})
    matcher = regex_matcher('/\n\\\\"', tokenizer)
    for token_id in (1, 2, 3, 4):
        assert allowed(matcher) == {token_id}
        matcher.accept(token_id)
    assert matcher.must_stop


def test_matching_that_explodes_ends_at_a_limit() -> None:
    """The automaton of this pattern has 2**40 states: one for each of the last 40 letters."""
    matcher = regex_matcher("(a|b)*a(a|b){40}", TINY)
    rng = np.random.default_rng(0)

    def follow(num_tokens: int) -> None:
        for _ in range(num_tokens):
            matcher.mask()
            matcher.accept(int(rng.integers(1, 3)))

    with pytest.raises(CapacityError, match="limit"):
        follow(60_000)


def test_a_dead_end_of_the_vocabulary_is_an_error() -> None:
    """The byte after "a" is in no token, which shows only there."""
    matcher = regex_matcher("ac", TinyTokenizer([b"<end>", b"a"], {0}, {0}))
    matcher.accept(1)
    with pytest.raises(UserInputError, match="cannot go on"):
        matcher.mask()


def test_a_matcher_outlives_its_tokenizer() -> None:
    tokenizer = TinyTokenizer([b"<end>", b"a"], {0}, {0})
    matcher = regex_matcher("a", tokenizer)
    reference = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert reference() is None
    matcher.accept(1)
    assert allowed(matcher) == {0}


def test_what_other_texts_found_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """All matchers find states of one lexer, and the library's limit counts them together."""
    monkeypatch.setitem(llguidance_grammar._LIMITS, "max_lexer_states", 2_000)
    grammar = regex_grammar("(a|b)*a(a|b){40}", TINY)
    rng = np.random.default_rng(0)
    for _ in range(8):
        matcher = grammar.matcher()
        for _ in range(150):
            assert {1, 2} <= allowed(matcher)
            matcher.accept(int(rng.integers(1, 3)))
        matcher.rollback(100)
        matcher.accept(1)
