"""Grammars of patterns by the native automaton, against their naive twin."""

from __future__ import annotations

import gc
import random
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.constrain.pattern_strategies import COMPLETE, TINY, json_string, patterns
from tests.constrain.tiny_vocabulary import TinyTokenizer, allowed

from espalier.constrain import explored_automaton
from espalier.constrain.automaton import AutomatonGrammar, AutomatonMatcher
from espalier.constrain.automaton_reference import ReferenceMatcher, can_start, matches
from espalier.constrain.matcher import MAX_FORCED_BYTES, Matcher
from espalier.constrain.pattern import (
    ANY_CHARACTER,
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
from espalier.errors import CapacityError, UserInputError
from espalier.loaders.model import load_model
from espalier.tokenizer.tokenizer import Tokenizer

A, B = Literal("a"), Literal("b")


def check_state(matcher: Matcher, twin: ReferenceMatcher) -> None:
    expected = twin.mask()
    if not expected.any() and not twin.must_stop:
        with pytest.raises(UserInputError, match="cannot go on"):
            matcher.mask()
        return
    np.testing.assert_array_equal(matcher.mask(), expected)
    assert not matcher.mask().flags.writeable
    assert matcher.is_complete == twin.is_complete
    assert matcher.must_stop == twin.must_stop
    assert matcher.forced_bytes() == twin.forced_bytes()
    assert matcher.num_allowed == twin.num_allowed
    assert matcher.allowed_ids().dtype == np.int32
    assert matcher.allowed_ids().tolist() == twin.allowed_ids().tolist()


def follow(matcher: Matcher, twin: ReferenceMatcher, choice: int, num_ids: int) -> None:
    """Goes on by an allowed token, or back where there is none or the choice says so."""
    ids = sorted(allowed(twin))
    if twin.num_accepted and (not ids or choice % 5 == 0):
        num_tokens = 1 + choice % twin.num_accepted
        matcher.rollback(num_tokens)
        twin.rollback(num_tokens)
        return
    refused = sorted(set(range(-1, num_ids + 2)) - set(ids))
    with pytest.raises(UserInputError, match="may not follow"):
        matcher.accept(refused[choice % len(refused)])
    if ids:
        token_id = ids[choice % len(ids)]
        matcher.accept(token_id)
        twin.accept(token_id)


@pytest.mark.parametrize("tokenizer", [TINY, COMPLETE], ids=["tiny", "complete"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(pattern=patterns(), choices=st.lists(st.integers(0, 10_000), max_size=6))
def test_everything_equals_the_naive_twins(
    tokenizer: TinyTokenizer, pattern: Pattern, choices: list[int]
) -> None:
    try:
        twin = ReferenceMatcher(pattern, tokenizer)
        is_contradiction = not twin.can_end_in_tokens()
    except UserInputError:
        is_contradiction = True
    except CapacityError:  # the twin searches little
        assume(False)
    if is_contradiction:
        with pytest.raises(UserInputError, match="no text made of this model's tokens"):
            AutomatonGrammar(pattern, tokenizer)
        return
    matcher = AutomatonGrammar(pattern, tokenizer).matcher()
    check_state(matcher, twin)
    for choice in choices:
        follow(matcher, twin, choice, tokenizer.vocab_size)
        check_state(matcher, twin)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(pattern=patterns(), choices=st.lists(st.integers(0, 10_000), max_size=8))
def test_starting_again_in_a_full_automaton_changes_no_answer(
    pattern: Pattern, choices: list[int]
) -> None:
    """With room for few states every other step starts again, or ends at the limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explored_automaton, "MAX_STATES", 30)
        try:
            twin = ReferenceMatcher(pattern, TINY)
            matcher = AutomatonGrammar(pattern, TINY).matcher()
        except (CapacityError, UserInputError):
            assume(False)
        with suppress(CapacityError):
            check_state(matcher, twin)
            for choice in choices:
                follow(matcher, twin, choice, TINY.vocab_size)
                check_state(matcher, twin)


def test_what_others_explored_ends_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explored_automaton, "MAX_STATES", 200)
    pattern = Concat((Repeat(Alternation((A, B)), 0, None), A, Repeat(Alternation((A, B)), 6, 6)))
    grammar = AutomatonGrammar(pattern, TINY)
    twin = ReferenceMatcher(pattern, TINY)
    matcher, other = grammar.matcher(), grammar.matcher()
    choose = random.Random(0)
    for _ in range(40):
        for _ in range(40):
            other.accept(choose.choice((1, 2, 4, 5)))
        token_id = choose.choice((1, 2, 4, 5))
        matcher.accept(token_id)
        twin.accept(token_id)
        check_state(matcher, twin)
    matcher.rollback(39)
    twin.rollback(39)
    check_state(matcher, twin)


def test_masks_are_shared_by_matchers_and_bounded() -> None:
    grammar = AutomatonGrammar(Literal("ab" * 500), TINY, max_mask_bytes=2000)
    first, second = grammar.matcher(), grammar.matcher()
    for _ in range(400):
        assert first.mask() is second.mask()
        first.accept(4)
        second.accept(4)
    # Four masks at most; the rest is the automaton.
    assert grammar.num_bytes - grammar.explored.automaton.num_bytes <= 2000
    assert first.mask() is first.mask()


def test_far_counts_share_masks() -> None:
    """No token is as long as what is left, so that the masks inside are one."""
    grammar = AutomatonGrammar(json_string(0, 10_000), TINY_JSON)
    matcher = grammar.matcher()
    matcher.accept(1)
    masks = set()
    for _ in range(200):
        masks.add(id(matcher.mask()))
        matcher.accept(2)
    assert len(masks) == 1


# Ends, a quote, letters.
TINY_JSON = TinyTokenizer([b"<end>", b'"', b"a", b'a"', b"\\", b"aaaa"], set(), {0})


def test_a_count_is_exact_at_its_end() -> None:
    matcher = AutomatonGrammar(json_string(3, 10), TINY_JSON).matcher()
    for num_done in range(11):
        if num_done == 0:
            matcher.accept(1)
        expected = set()
        if num_done >= 3:
            expected.add(1)
        if num_done <= 9:
            expected |= {2, 4}
        if 2 <= num_done <= 9:
            expected.add(3)
        if num_done <= 6:
            expected.add(5)
        assert allowed(matcher) == expected, num_done
        if num_done < 10:
            matcher.accept(2)


def test_a_mask_has_the_width_of_the_models_logits() -> None:
    wide = AutomatonGrammar(A, TINY, vocab_size=70).matcher()
    assert wide.mask().shape == (3,)
    assert allowed(wide) == {1}
    narrow = AutomatonGrammar(Repeat(A, 1, 9), TINY, vocab_size=5).matcher()
    assert narrow.mask().shape == (1,)
    assert allowed(narrow) == {1}
    with pytest.raises(UserInputError, match="may not follow"):
        narrow.accept(21)  # "aaaaaaaa", which the logits do not have


def test_accepting_an_end_of_text_stops() -> None:
    matcher = AutomatonGrammar(Repeat(Literal("ab"), 1, None), TINY).matcher()
    with pytest.raises(UserInputError):
        matcher.accept(0)
    matcher.accept(4)
    assert not matcher.must_stop
    matcher.accept(23)
    assert matcher.must_stop
    assert matcher.is_complete
    assert matcher.num_allowed == 0
    assert allowed(matcher) == set()
    assert matcher.forced_bytes() == b""
    for token_id in (0, 4, 23):
        with pytest.raises(UserInputError):
            matcher.accept(token_id)
    matcher.rollback(1)
    assert allowed(matcher) == {0, 1, 4, 7, 23}


def test_more_than_was_accepted_cannot_be_taken_back() -> None:
    matcher = AutomatonGrammar(ANY_TEXT, TINY).matcher()
    matcher.accept(1)
    for num_tokens in (2, -1):
        with pytest.raises(UserInputError, match="1 were accepted"):
            matcher.rollback(num_tokens)
    matcher.rollback(0)
    matcher.rollback(1)
    assert len(allowed(matcher)) > 10


def test_long_forced_text_comes_in_bounded_pieces() -> None:
    text = "ab" * MAX_FORCED_BYTES
    matcher = AutomatonGrammar(Literal(text), TINY).matcher()
    assert matcher.forced_bytes() == text.encode()[:MAX_FORCED_BYTES]
    for _ in range(MAX_FORCED_BYTES - 10):
        matcher.accept(4)
    assert matcher.forced_bytes() == b"ab" * 10


def test_a_text_that_no_tokens_spell_is_refused() -> None:
    tokenizer = TinyTokenizer([b"<end>", b"a", b"aab"], set(), {0})
    for pattern in (Literal("ac"), Literal("ab"), B, Both(Repeat(A, 1, None), B)):
        with pytest.raises(UserInputError, match="no text made of this model's tokens"):
            AutomatonGrammar(pattern, tokenizer)
    matcher = AutomatonGrammar(Literal("aaab"), tokenizer).matcher()
    for _ in range(3):
        matcher.accept(1)
    with pytest.raises(UserInputError, match="cannot go on"):
        matcher.mask()


def test_a_grammar_holds_the_tokenizer_weakly() -> None:
    tokenizer = TinyTokenizer([b"<end>", b"a"], set(), {0})
    matcher = AutomatonGrammar(Repeat(A, 1, None), tokenizer).matcher()
    reference = weakref.ref(tokenizer)
    del tokenizer
    gc.collect()
    assert reference() is None
    matcher.accept(1)
    assert allowed(matcher) == {0, 1}


def test_threads_share_a_grammar() -> None:
    """Each thread follows the same pseudo-random ways and must find the same masks."""
    pattern = Repeat(Alternation((json_string(0, 20), Repeat(ANY_CHARACTER, 3, 5), A)), 0, None)
    expected = masks_on_the_way(AutomatonGrammar(pattern, COMPLETE))
    for _ in range(3):
        grammar = AutomatonGrammar(pattern, COMPLETE, max_mask_bytes=5000)
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(masks_on_the_way, [grammar] * 4))
        assert found == [expected] * 4


def masks_on_the_way(grammar: AutomatonGrammar) -> list[bytes]:
    choose = random.Random(1)
    masks = []
    for _ in range(8):
        matcher = grammar.matcher()
        for _ in range(20):
            masks.append(matcher.mask().tobytes() + matcher.forced_bytes())
            ids = [i for i in matcher.allowed_ids().tolist() if i not in COMPLETE.eos_ids]
            matcher.accept(choose.choice(ids))
    return masks


@pytest.fixture(scope="module")
def real_tokenizer(smollm2_path: Path) -> Tokenizer:
    return load_model(smollm2_path).tokenizer


REAL_PATTERNS = {
    "string": json_string(0, None),
    "short string": json_string(2, 9),
    "key without names": Without(
        json_string(1, None), Alternation((Literal('"name"'), Literal('"na\u00efve"')))
    ),
    "long and held": Both(json_string(0, 300), Concat((ANY_TEXT, Literal("ed"), ANY_TEXT))),
    "han": Repeat(CharClass(((0x4E00, 0x9FFF),)), 1, 20),
    "object": Concat(
        (Literal('{"name":'), json_string(0, None), Literal(',"age":'),
         Repeat(CharClass(((0x30, 0x39),)), 1, 3), Literal("}"))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(REAL_PATTERNS))
def test_masks_of_a_real_vocabulary_equal_trying_tokens(
    name: str, real_tokenizer: Tokenizer
) -> None:
    pattern = REAL_PATTERNS[name]
    matcher = AutomatonGrammar(pattern, real_tokenizer).matcher()
    choose = random.Random(2)
    text = b""
    for _ in range(6):
        ids = matcher.allowed_ids().tolist()
        sample = choose.sample(range(real_tokenizer.vocab_size), 300) + choose.sample(
            ids, min(len(ids), 30)
        )
        for token_id in sample:
            data = real_tokenizer.token_bytes(token_id)
            is_text = not real_tokenizer.is_control(token_id) and bool(data)
            expected = is_text and can_start(pattern, text + data)
            if token_id in real_tokenizer.eos_ids:
                expected = matches(pattern, text)
            assert (token_id in ids) == expected, (text, data)
        text_ids = [i for i in ids if i not in real_tokenizer.eos_ids]
        if not text_ids:
            break
        token_id = choose.choice(text_ids)
        matcher.accept(token_id)
        text += real_tokenizer.token_bytes(token_id)


def a_or_b(low: int, high: int | None) -> Pattern:
    return Repeat(Alternation((A, B)), low, high)


def nested(num_times: int, pattern: Pattern) -> Pattern:
    for _ in range(num_times):
        pattern = Without(ANY_TEXT, pattern)
    return pattern


def doubled(num_times: int, pattern: Pattern) -> Pattern:
    for _ in range(num_times):
        pattern = Concat((pattern, pattern))
    return pattern


def deep(kind: str, depth: int) -> Pattern:
    pattern: Pattern = A
    for _ in range(depth):
        if kind == "concat":
            pattern = Concat((pattern, B))
        elif kind == "alternation":
            pattern = Alternation((pattern, B))
        elif kind == "star":
            pattern = Repeat(pattern, 0, None)
        else:
            pattern = Repeat(pattern, 0, 2)
    return pattern


def wander(matcher: AutomatonMatcher, num_tokens: int) -> None:
    choose = random.Random(0)
    for _ in range(num_tokens):
        ids = [i for i in matcher.allowed_ids().tolist() if i not in COMPLETE.eos_ids]
        if not ids:
            return
        matcher.forced_bytes()
        matcher.accept(choose.choice(ids))


@pytest.mark.parametrize(
    "pattern",
    [
        Repeat(Alternation((A, A)), 0, None),
        Repeat(Repeat(Repeat(A, 0, None), 0, None), 1, None),
        Repeat(Repeat(Repeat(A, 100, 100), 100, 100), 100, 100),
        Repeat(A, 10**9, 10**9),
        doubled(64, A),
        Concat((a_or_b(0, None), A, a_or_b(20, 20))),
        deep("concat", 100_000),
        deep("alternation", 100_000),
        nested(60, A),
        Alternation(tuple(Literal(f"{'ab' * (i % 7)}{i}") for i in range(20_000))),
    ],
    ids=["same options", "stars", "million", "billion", "2**64", "2**20 states", "deep concat",
         "deep alternation", "nested", "20,000 options"],
)  # fmt: skip
def test_patterns_that_are_large_when_expanded_work(pattern: Pattern) -> None:
    wander(AutomatonGrammar(pattern, COMPLETE).matcher(), 300)


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (Repeat(A, 10**12, None), "a repeat of more than 1073741824 times"),
        (nested(65, A), "nested more than 64 deep"),
        (nested(100_000, A), "nested more than 64 deep"),
        (doubled(64, Literal("")), "too many steps"),
        (Concat(tuple(Literal("a") for _ in range(250_000))), "more than 250000 parts"),
        (
            Both(
                Repeat(Repeat(A, 499, 499), 1, None),
                Both(Repeat(Repeat(A, 503, 503), 1, None), Repeat(Repeat(A, 509, 509), 1, None)),
            ),
            "too many steps|more than 100000 states",
        ),
    ],
    ids=["count", "nested", "deeply nested", "2**64 of nothing", "parts", "coprime"],
)
def test_patterns_beyond_the_limits_of_compilation_are_refused(pattern: Pattern, told: str) -> None:
    with pytest.raises(UserInputError, match=told) as caught:
        AutomatonGrammar(pattern, TINY)
    assert "too large" in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    [
        deep("star", 100_000),
        deep("bounded", 100_000),
        Without(a_or_b(0, None), Concat((a_or_b(0, None), A, a_or_b(25, 25), a_or_b(0, None)))),
        Repeat(Repeat(Repeat(ANY_TEXT, 0, 1000), 0, 1000), 0, 1000),
    ],
    ids=["deep stars", "deep bounds", "2**25 states of a difference", "ambiguous counts"],
)
def test_matching_beyond_the_limits_ends_with_an_error(pattern: Pattern) -> None:
    """It may work out for a while, or from the start not."""
    with pytest.raises((CapacityError, UserInputError), match=r"limit|too large"):
        wander(AutomatonGrammar(pattern, COMPLETE).matcher(), 20_000)


def test_a_text_with_too_many_states_of_its_own_ends_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explored_automaton, "MAX_STATES", 2_000)
    pattern = Concat((a_or_b(0, None), A, a_or_b(30, 30)))
    matcher = AutomatonGrammar(pattern, COMPLETE).matcher()
    with pytest.raises(CapacityError, match="more than 2000 states"):
        wander(matcher, 10_000)


def test_what_is_no_pattern_is_refused() -> None:
    loop = Concat((A,))
    object.__setattr__(loop, "parts", (loop,))
    for broken, error in (
        ("a", TypeError),
        (Concat((A, None)), TypeError),  # type: ignore[arg-type]
        (Concat([A]), TypeError),  # type: ignore[arg-type]
        (Literal(b"a"), TypeError),  # type: ignore[arg-type]
        (CharClass(((5, 4),)), ValueError),
        (CharClass(((4, 5), (5, 6))), ValueError),
        (CharClass(((0, 0x110000),)), ValueError),
        (CharClass(((0, 1, 2),)), TypeError),  # type: ignore[arg-type]
        (Repeat(A, -1, None), ValueError),
        (Repeat(A, "1", None), TypeError),  # type: ignore[arg-type]
        (loop, ValueError),
    ):
        with pytest.raises(error):
            AutomatonGrammar(broken, TINY)  # type: ignore[arg-type]
