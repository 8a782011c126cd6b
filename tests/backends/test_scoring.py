from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.backends.toy import (
    TOKENS,
    rows_of,
    toy_backend,
    toy_logprob,
    toy_text_probability,
    toy_tokenizer,
)

from espalier.backends.base import ChoiceScores, ScoreCall
from espalier.backends.local import LocalBackend
from espalier.backends.prompt_ids import PromptEncoder
from espalier.types import Prompt, TextSegment, TokenLogprob, TokenSegment


@pytest.fixture(scope="module")
def backend() -> Iterator[LocalBackend]:
    backend = toy_backend()
    yield backend
    backend.shutdown()


@pytest.fixture(scope="module")
def with_bos() -> Iterator[LocalBackend]:
    backend = toy_backend(add_bos=True)
    yield backend
    backend.shutdown()


def score(
    backend: LocalBackend, prompt: Prompt, choices: Sequence[str], unconditional: bool = False
) -> ChoiceScores:
    call = ScoreCall(prompt, tuple(choices), unconditional)
    return asyncio.run(backend.score(call))


def total(logprobs: Sequence[TokenLogprob]) -> float:
    return sum(entry.logprob for entry in logprobs if entry.logprob is not None)


def brute_force(prompt: str, choices: Sequence[str]) -> list[float]:
    """log P(choice | text of the prompt), for the tokens of prompt and choice together."""
    tokenizer = toy_tokenizer(True)
    own = tokenizer.encode(prompt)
    joined = [tokenizer.encode(prompt + choice) for choice in choices]
    shared = 0
    while len({tuple(ids[: shared + 1]) for ids in (own, *joined)}) == 1 and shared < len(own):
        shared += 1
    tail = b"".join(tokenizer.token_bytes(token_id) for token_id in own[shared:])
    tail_logprob = math.log(toy_text_probability(own[:shared], tail))
    return [
        sum(toy_logprob(ids[:index], ids[index]) for index in range(shared, len(ids)))
        - tail_logprob
        for ids in joined
    ]


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.text("abcd !", min_size=1, max_size=8),
    choices=st.lists(
        st.text("abcd !", min_size=1, max_size=5), min_size=1, max_size=4, unique=True
    ),
)
@example(prompt="d a", choices=["bc", "b", "c"])  # the border lies inside the prompt's last token
@example(prompt="d", choices=["ab", "abc", "abcd"])  # choices that begin each other
@example(prompt="d", choices=[" a", " b", " "])  # choices that start with a space
@example(prompt="d ", choices=["a", "b", "  a"])  # a prompt that ends with one
@example(prompt="!   ", choices=[" a", "a"])
def test_t20_scores_are_those_of_brute_force(
    with_bos: LocalBackend, prompt: str, choices: list[str]
) -> None:
    scores = score(with_bos, (TextSegment(prompt),), choices)
    expected = brute_force(prompt, choices)
    for logprobs, value in zip(scores.token_logprobs, expected, strict=True):
        assert total(logprobs) == pytest.approx(value, abs=1e-4)


def test_t20_generated_tokens_are_not_cut_anew(backend: LocalBackend) -> None:
    a, b, bc, ab = (TOKENS.index(token) for token in ("a", "b", "bc", "ab"))
    prompt = (TextSegment("d"), TokenSegment((a,), "a"))
    scores = score(backend, prompt, ["b", "bc"])
    history = [TOKENS.index("d"), a]
    assert total(scores.token_logprobs[0]) == pytest.approx(toy_logprob(history, b), abs=1e-5)
    assert total(scores.token_logprobs[1]) == pytest.approx(toy_logprob(history, bc), abs=1e-5)
    joined = score(backend, (TextSegment("da"),), ["b"])
    assert joined.token_logprobs[0][0].token_id == ab


def test_the_first_entry_is_the_token_that_reaches_into_the_choice(backend: LocalBackend) -> None:
    scores = score(backend, (TextSegment("d a"),), ["bc!", "c"])
    assert [TOKENS[entry.token_id] for entry in scores.token_logprobs[0]] == ["Ġabc", "!"]
    assert [TOKENS[entry.token_id] for entry in scores.token_logprobs[1]] == ["c"]


def test_t21_an_empty_prompt_is_scored_after_the_bos_or_without_a_first_logprob(
    backend: LocalBackend, with_bos: LocalBackend
) -> None:
    ab, d = TOKENS.index("ab"), TOKENS.index("d")
    (entries,) = score(with_bos, (), ["abd"]).token_logprobs
    expected = [toy_logprob([0], ab), toy_logprob([0, ab], d)]
    assert [entry.logprob for entry in entries] == pytest.approx(expected, abs=1e-5)
    (entries,) = score(backend, (), ["abd"]).token_logprobs
    assert entries[0].logprob is None
    assert entries[1].logprob == pytest.approx(toy_logprob([ab], d), abs=1e-5)


def test_without_a_bos_a_prompt_of_one_token_is_not_cut_anew(backend: LocalBackend) -> None:
    a, b = TOKENS.index("a"), TOKENS.index("b")
    (entries,) = score(backend, (TextSegment("a"),), ["b"]).token_logprobs
    assert [entry.token_id for entry in entries] == [b]
    assert total(entries) == pytest.approx(toy_logprob([a], b), abs=1e-5)


def test_unconditional_logprobs_are_those_of_the_choice_alone(
    backend: LocalBackend, with_bos: LocalBackend
) -> None:
    ab, d = TOKENS.index("ab"), TOKENS.index("d")
    scores = score(backend, (TextSegment("d "),), ["abd"], unconditional=True)
    assert scores.unconditional is not None
    first, second = scores.unconditional[0]
    assert first.logprob is None
    assert second.logprob == pytest.approx(toy_logprob([ab], d), abs=1e-5)
    scores = score(with_bos, (TextSegment("d "),), ["abd"], unconditional=True)
    assert scores.unconditional is not None
    assert scores.unconditional[0][0].logprob == pytest.approx(toy_logprob([0], ab), abs=1e-5)
    assert score(backend, (TextSegment("d "),), ["abd"]).unconditional is None


def test_t22_the_prompt_is_computed_once_and_so_is_what_choices_begin_with() -> None:
    backend = toy_backend()
    try:
        prompt = "d!" * 100
        ids = PromptEncoder(toy_tokenizer()).encode((TextSegment(prompt),)).all
        choices = ["c!" * 20 + end for end in "abcd"]
        before = rows_of(backend)
        scores = score(backend, (TextSegment(prompt),), choices)
        # Each step computes the token before its first one again.
        assert rows_of(backend) - before == len(ids) + (40 + 1) + 4 * 2
        usage = scores.usage
        assert (usage.calls, usage.prompt_tokens) == (1, len(ids) + 4 * 41)
        assert usage.cached_tokens == 3 * 40
        assert usage.computed_tokens == len(ids) + 40 + 4
        again = score(backend, (TextSegment(prompt),), choices)
        assert again.token_logprobs == scores.token_logprobs
        assert again.usage.cached_tokens >= len(ids) - 1 + 3 * 40
    finally:
        backend.shutdown()


def test_a_choice_that_begins_all_others_is_scored_on_the_way(backend: LocalBackend) -> None:
    beginning = "d!" * 10
    choices = [beginning, beginning + "a", beginning + "ab"]
    scores = score(backend, (TextSegment("c!"),), choices)
    for choice, logprobs in zip(choices, scores.token_logprobs, strict=True):
        (alone,) = score(backend, (TextSegment("c!"),), [choice]).token_logprobs
        assert logprobs == alone
