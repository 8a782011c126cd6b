from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from espalier.backends.base import GenerateCall, GenerateResult, ScoreCall, derive_seed
from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import (
    BackendError,
    ChatTemplateError,
    EngineClosedError,
    PromptError,
    UserInputError,
)
from espalier.types import FinishReason, SamplingParams, TextSegment


def generate(backend: ScriptedBackend, text: str = "p", **sampling: Any) -> GenerateResult:
    call = GenerateCall((TextSegment(text),), SamplingParams(**sampling))
    return asyncio.run(backend.generate(call))


def text_of(backend: ScriptedBackend, text: str = "p", **sampling: Any) -> str:
    return generate(backend, text, **sampling).samples[0].text


def test_a_text_answers_every_call() -> None:
    backend = ScriptedBackend("yes")
    assert [text_of(backend), text_of(backend)] == ["yes", "yes"]


def test_a_list_answers_in_turn_and_ends() -> None:
    backend = ScriptedBackend(["a", ValueError("boom"), ["b", "c"]])
    assert text_of(backend) == "a"
    with pytest.raises(ValueError, match="boom"):
        text_of(backend)
    assert [sample.text for sample in generate(backend, n=2).samples] == ["b", "c"]
    with pytest.raises(BackendError, match="at its end; call 4"):
        text_of(backend)


def test_a_dict_answers_by_the_part_of_the_prompt_that_ends_last() -> None:
    backend = ScriptedBackend({"A:": "a", "B:": "b", "not B:": "c"})
    assert text_of(backend, "B: A:") == "a"
    assert text_of(backend, "A: B:") == "b"
    assert text_of(backend, "A: not B:") == "c"
    with pytest.raises(BackendError, match="no answer after 'Z:'"):
        text_of(backend, "Z:")


def test_a_function_answers_by_the_call() -> None:
    def answer(call: ScriptedCall) -> str:
        assert call.sampling is not None
        return f"{call.kind} {call.text} {call.sampling.max_new_tokens}"

    assert text_of(ScriptedBackend(answer), "q", max_new_tokens=9) == "generate q 9"


def test_stops_lengths_and_samples_are_as_a_models() -> None:
    backend = ScriptedBackend("one two. three")
    assert text_of(backend, stop=(".", "three")) == "one two"
    assert text_of(backend, stop=".", no_stop_trim=True) == "one two."
    (sample,) = generate(backend, max_new_tokens=2).samples
    assert sample.text == "one two."
    assert sample.meta_info["finish_reason"] == FinishReason("length", length=2).as_wire()
    assert [sample.text for sample in generate(backend, n=3).samples] == ["one two. three"] * 3
    with pytest.raises(BackendError, match="2 texts for a call that asks for 3"):
        generate(ScriptedBackend([["a", "b"]]), n=3)


@pytest.mark.parametrize("kind", ["word", "byte"])
def test_tokens_are_words_or_bytes_and_stand_for_the_text(kind: str) -> None:
    backend = ScriptedBackend("né 🌍", tokens=kind)
    (sample,) = generate(backend).samples
    assert sample.token_ids is not None
    assert len(sample.token_ids) == (2 if kind == "word" else 8)
    assert sample.meta_info["completion_tokens"] == len(sample.token_ids)
    assert generate(ScriptedBackend("a", gives_token_ids=False)).samples[0].token_ids is None


def test_bytes_are_cut_at_whole_characters_only() -> None:
    backend = ScriptedBackend("🌍🌍", tokens="byte")
    assert text_of(backend, max_new_tokens=6) == "🌍"
    pieces: list[str] = []

    def on_delta(index: int, text: str, meta: Mapping[str, Any]) -> None:
        pieces.append(text)

    call = GenerateCall((TextSegment("p"),), SamplingParams())
    asyncio.run(backend.generate(call, on_delta))
    assert pieces == ["🌍", "🌍"]


def test_a_selection_chooses_the_answer() -> None:
    backend = ScriptedBackend(["b", "z"])
    call = ScoreCall((TextSegment("p"),), ("a", "b"), needs_unconditional=True)
    scores = asyncio.run(backend.score(call))
    first, second = (entries[0].logprob for entries in scores.token_logprobs)
    assert first is not None
    assert second is not None
    assert second > first
    assert scores.unconditional is not None
    with pytest.raises(BackendError, match="'z', which is none of"):
        asyncio.run(backend.score(call))


def test_failures_are_drawn_by_the_seed() -> None:
    def failed(seed: int) -> list[bool]:
        backend = ScriptedBackend(failure_rate=0.5, seed=seed)

        def fails() -> bool:
            try:
                text_of(backend)
            except BackendError:
                return True
            return False

        return [fails() for _ in range(40)]

    assert failed(1) == failed(1) != failed(2)
    assert 10 < sum(failed(1)) < 30


def test_calls_are_recorded_and_counted() -> None:
    backend = ScriptedBackend("a b", model_name="toy")
    result = generate(backend, "one two three")
    usage = asyncio.run(backend.prefill((TextSegment("one two"),)))
    assert [(call.kind, call.text) for call in backend.calls] == [
        ("generate", "one two three"),
        ("prefill", "one two"),
    ]
    assert (result.usage.prompt_tokens, result.usage.generated_tokens) == (3, 2)
    assert (usage.calls, usage.prompt_tokens) == (0, 2)
    assert backend.server_info() == {"model": "toy", "num_calls": 2}
    assert backend.flush_cache() is True


def test_what_a_model_would_refuse_is_refused() -> None:
    with pytest.raises(PromptError, match="empty"):
        text_of(ScriptedBackend(), "")
    with pytest.raises(ChatTemplateError):
        ScriptedBackend(template=None).role_template()
    backend = ScriptedBackend()
    backend.shutdown()
    with pytest.raises(EngineClosedError):
        text_of(backend)


@pytest.mark.parametrize(
    "options",
    [{"tokens": "line"}, {"latency_s": -1.0}, {"latency_s": (2.0, 1.0)}, {"failure_rate": 2.0}],
)
def test_wrong_options_raise(options: dict[str, Any]) -> None:
    with pytest.raises(UserInputError, match="allowed"):
        ScriptedBackend(**options)


def test_derived_seeds_are_fixed_and_differ_by_each_part() -> None:
    assert derive_seed(1, 2, 3) == derive_seed(1, 2, 3)
    seeds = {derive_seed(a, b, c) for a in range(6) for b in range(6) for c in range(6)}
    assert len(seeds) == 216
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert derive_seed(1, 2) != derive_seed(1, 2, 0)
    # Written down: a seed that a user noted must mean the same in every version.
    assert [derive_seed(0, 0), derive_seed(7, 1, 2)] == [8147104208329303767, 8326263253755198632]
