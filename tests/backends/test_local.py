from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.backends.toy import TOKENS, rows_of, toy_backend, toy_engine, toy_logprob, toy_tokenizer
from tests.engine.gate import keep_pace_with

from espalier.backends.base import GenerateCall, GenerateResult, LogprobOptions, derive_seed
from espalier.backends.local import LocalBackend
from espalier.errors import (
    ChatTemplateError,
    EngineClosedError,
    GenerationError,
    PromptError,
    RequestCancelledError,
)
from espalier.lang.api import assistant, gen, select, user
from espalier.lang.function import function
from espalier.lang.state import ProgramState
from espalier.types import Prompt, SamplingParams, TextSegment, TokenSegment


@pytest.fixture
def backend() -> Iterator[LocalBackend]:
    backend = toy_backend()
    yield backend
    backend.shutdown()


PROMPT: Prompt = (TextSegment("d!abc a"),)


def generate(backend: LocalBackend, prompt: Prompt = PROMPT, **sampling: Any) -> GenerateResult:
    values = {"max_new_tokens": 12, "ignore_eos": True, **sampling}
    return asyncio.run(backend.generate(GenerateCall(prompt, SamplingParams(**values))))


def test_greedy_text_is_that_of_the_model(backend: LocalBackend) -> None:
    (sample,) = generate(backend, temperature=0.0).samples
    history = toy_tokenizer().encode("d!abc a")
    for _ in range(12):
        history.append(max(range(len(TOKENS)), key=lambda t: toy_logprob(history, t)))
    assert sample.text == toy_tokenizer().decode(history[-12:])
    assert sample.token_ids is not None
    assert sample.meta_info["completion_tokens"] == 12
    assert sample.meta_info["prompt_tokens"] == len(history) - 12
    assert sample.meta_info["finish_reason"] == {"type": "length", "length": 12}


def test_meta_info_has_the_reference_shape_of_logprobs(backend: LocalBackend) -> None:
    call = GenerateCall(
        PROMPT,
        SamplingParams(max_new_tokens=2, temperature=0.0, ignore_eos=True),
        LogprobOptions(True, 0, 2, True),
    )
    (sample,) = asyncio.run(backend.generate(call)).samples
    ids = toy_tokenizer().encode("d!abc a")
    meta = sample.meta_info
    assert meta["input_token_logprobs"][0] == (None, ids[0], "d")
    assert [entry[1] for entry in meta["input_token_logprobs"]] == ids
    logprob, token_id, text = meta["output_token_logprobs"][0]
    assert logprob == pytest.approx(toy_logprob(ids, token_id), abs=1e-5)
    assert text == toy_tokenizer().token_text(token_id)
    assert [len(row) for row in meta["output_top_logprobs"]] == [2, 2]
    assert set(meta) >= {"id", "cached_tokens", "forced_tokens", "e2e_latency"}


def test_t15_a_seed_gives_the_same_whatever_else_runs_and_is_cached(backend: LocalBackend) -> None:
    alone = generate(backend, sampling_seed=7).samples[0].text
    assert generate(backend, sampling_seed=8).samples[0].text != alone

    async def crowd() -> list[GenerateResult]:
        calls = [
            GenerateCall(
                PROMPT, SamplingParams(max_new_tokens=12, sampling_seed=seed % 8, ignore_eos=True)
            )
            for seed in range(24)
        ]
        return await asyncio.gather(*(backend.generate(call) for call in calls))

    results = asyncio.run(crowd())
    assert [result.samples[0].text for result in results[7::8]] == [alone] * 3
    backend.flush_cache()
    assert generate(backend, sampling_seed=7).samples[0].text == alone


def test_a_call_without_seed_has_one_of_its_key_and_the_backends_seed() -> None:
    first, second, other = toy_backend(), toy_backend(), toy_backend(random_seed=1)
    try:
        call = GenerateCall(PROMPT, SamplingParams(max_new_tokens=12, ignore_eos=True), seed_key=5)

        def text(backend: LocalBackend, call: GenerateCall) -> str:
            return asyncio.run(backend.generate(call)).samples[0].text

        assert text(first, call) == text(second, call)
        assert text(first, call) != text(other, call)
        assert text(first, call) != text(first, replace(call, seed_key=6))
        seeded = generate(first, sampling_seed=derive_seed(0, 5))
        assert seeded.samples[0].text == text(first, call)
    finally:
        for backend in (first, second, other):
            backend.shutdown()


def test_n_samples_share_the_prompt_and_the_first_is_that_of_n_1(backend: LocalBackend) -> None:
    prompt: Prompt = (TextSegment("d!" * 50),)
    before = rows_of(backend)
    result = generate(backend, prompt, n=4, sampling_seed=3, max_new_tokens=4)
    num_rows = rows_of(backend) - before
    texts = [sample.text for sample in result.samples]
    assert len(set(texts)) > 1
    assert num_rows <= 100 + 3 + 4 * 3
    assert result.usage.prompt_tokens == 100
    assert result.usage.cached_tokens + result.usage.computed_tokens == 100
    assert result.usage.generated_tokens == 16
    assert generate(backend, prompt, sampling_seed=3, max_new_tokens=4).samples[0].text == texts[0]


def test_the_pieces_of_a_stream_joined_are_the_text(backend: LocalBackend) -> None:
    pieces: dict[int, str] = {0: "", 1: ""}
    metas: list[Mapping[str, Any]] = []

    def on_delta(index: int, text: str, meta: Mapping[str, Any]) -> None:
        pieces[index] += text
        metas.append(meta)

    sampling = SamplingParams(max_new_tokens=40, n=2, sampling_seed=1, stop=("a b",))

    async def main() -> GenerateResult:
        keep_pace_with(backend.engine._core, asyncio.get_running_loop())
        return await backend.generate(GenerateCall(PROMPT, sampling), on_delta)

    result = asyncio.run(main())
    for index, sample in enumerate(result.samples):
        assert sample.text.startswith(pieces[index])
        assert pieces[index]
    assert all(meta["finish_reason"] is None for meta in metas)


def test_a_stop_string_is_neither_in_the_text_nor_in_its_tokens(backend: LocalBackend) -> None:
    whole = generate(backend, temperature=0.0, max_new_tokens=40).samples[0].text
    stop = whole[5:8]
    (sample,) = generate(backend, temperature=0.0, max_new_tokens=40, stop=(stop,)).samples
    assert sample.text == whole[: whole.index(stop)]
    if sample.token_ids is not None:
        assert toy_tokenizer().decode(sample.token_ids) == sample.text
    (kept,) = generate(
        backend, temperature=0.0, max_new_tokens=40, stop=(stop,), no_stop_trim=True
    ).samples
    assert kept.text == whole[: whole.index(stop)] + stop


def test_prefill_computes_and_caches_without_generating(backend: LocalBackend) -> None:
    prompt: Prompt = (TextSegment("d!" * 30),)
    usage = asyncio.run(backend.prefill(prompt))
    assert (usage.calls, usage.prompt_tokens, usage.computed_tokens) == (0, 60, 60)
    result = generate(backend, prompt)
    assert result.usage.cached_tokens == 59
    assert result.usage.computed_tokens == 1


def test_generated_tokens_are_reused_in_the_next_turn(backend: LocalBackend) -> None:
    (sample,) = generate(backend, temperature=0.0).samples
    assert sample.token_ids is not None
    prompt = (*PROMPT, TokenSegment(sample.token_ids, sample.text), TextSegment("d"))
    result = generate(backend, prompt, temperature=0.0)
    # The last generated token was never fed back.
    assert result.usage.cached_tokens == len(toy_tokenizer().encode("d!abc a")) + 11


def test_an_empty_prompt_raises(backend: LocalBackend) -> None:
    with pytest.raises(PromptError, match="empty"):
        generate(backend, ())


def test_cancelling_the_task_cancels_the_request(backend: LocalBackend) -> None:
    async def main() -> None:
        call = GenerateCall(PROMPT, SamplingParams(max_new_tokens=900, n=3, ignore_eos=True))
        task = asyncio.ensure_future(backend.generate(call))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(500):
            if not backend.engine.stats().running:
                break
            await asyncio.sleep(0.01)
        assert backend.engine.stats().running == 0

    asyncio.run(main())


def test_after_shutdown_calls_raise(backend: LocalBackend) -> None:
    backend.shutdown()
    with pytest.raises(EngineClosedError):
        generate(backend)


def test_a_model_without_template_says_so_where_roles_are_used() -> None:
    backend = LocalBackend(
        toy_engine(), toy_tokenizer(), template=ChatTemplateError("no template"), model_name="bare"
    )

    @function
    def program(s: ProgramState) -> None:
        with pytest.warns(UserWarning, match="for the model 'bare': no template"):
            s += user("a")
        s += "d" + gen("x", max_tokens=2)

    with pytest.raises(ChatTemplateError, match="no template"):
        backend.role_template()
    assert program.run(backend=backend).text().startswith("USER:a\nd")
    backend.shutdown()


def test_server_info_is_json(backend: LocalBackend) -> None:
    import json

    info = json.loads(json.dumps(backend.server_info()))
    assert info["model"] == "toy"
    assert info["options"]["schedule_policy"] == "lpm"
    assert info["stats"]["slots_free"] == 4096


@function
def branching(s: ProgramState) -> None:
    s += "d!abc " * 20
    forks = s.fork(8)
    forks += lambda index: "abcd"[index % 4] + gen("x", max_tokens=6, ignore_eos=True)
    forks.join()
    s += " c" + select("c", ["a b", "a bc", "d"])


def test_forks_find_their_prefix_in_the_cache(backend: LocalBackend) -> None:
    state = branching.run(backend=backend)
    num_prefix = len(toy_tokenizer().encode("d!abc " * 20))
    assert all(meta["cached_tokens"] >= num_prefix - 1 for meta in state.get_meta_info("x"))
    usage = state.usage()
    assert usage.calls == 9
    assert usage.prompt_tokens == usage.cached_tokens + usage.computed_tokens
    # The prefix is one branch's to compute: it may not count as a hit of all of them.
    assert num_prefix <= usage.computed_tokens
    branch_tokens = sum(meta["prompt_tokens"] for meta in state.get_meta_info("x"))
    assert usage.cached_tokens <= usage.prompt_tokens - num_prefix
    assert usage.prompt_tokens < branch_tokens + 2 * num_prefix
    assert usage.hit_rate > 0.7


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_program_gives_the_same_cached_uncached_and_in_a_crowd(temperature: float) -> None:
    def texts(backend: LocalBackend, runs: int) -> list[Any]:
        states = branching.run_batch(
            [{}] * runs, backend=backend, temperature=temperature, seed=11, num_threads=8
        )
        return [[state["x"], state["c"], state.text()] for state in states]

    small = toy_backend(max_running_requests=2, chunk_tokens=7, num_slots=400)
    fresh = toy_backend()
    no_cache = toy_backend(prefix_cache=False)
    try:
        expected = texts(fresh, 6)
        assert texts(fresh, 6) == expected
        assert texts(small, 6) == expected
        assert texts(no_cache, 6) == expected
        if temperature:
            assert expected[0] != expected[1]
    finally:
        for backend in (small, fresh, no_cache):
            backend.shutdown()


def test_an_engine_error_reaches_the_reader_with_its_cause(backend: LocalBackend) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "d!" * 2000 + gen("x")

    state = program.run(backend=backend)
    with pytest.raises(GenerationError, match="context holds 1024") as caught:
        _ = state["x"]
    assert isinstance(caught.value.__cause__, PromptError)


def test_a_cancelled_program_leaves_no_request_in_the_engine(backend: LocalBackend) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "d"
        forks = s.fork(4)
        forks += gen("x", max_tokens=900, ignore_eos=True)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        program.run(backend=backend)
    state = assistant_program.run(backend=backend)
    assert len(state.messages()) == 2
    assert backend.engine.stats().running == 0


@function
def assistant_program(s: ProgramState) -> None:
    s += user("a") + assistant("b" + gen("x", max_tokens=3) + "c")


def test_a_request_that_is_cancelled_from_outside_is_an_error_of_its_state(
    backend: LocalBackend,
) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "d" + gen("x", max_tokens=900, ignore_eos=True)

    state = program.run(backend=backend)
    state.cancel()
    with pytest.raises(RequestCancelledError):
        state.sync()
