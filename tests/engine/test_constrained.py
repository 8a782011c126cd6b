"""Constrained outputs on the hash model: forced tokens, healing, rollback, logprobs, preemption.

The oracle asks the model's definition for every token in turn, with no cache and no batch.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.fakes import (
    EOS_ID,
    VOCAB_SIZE,
    HashExecutor,
    history_hash,
    logits_of,
    naive_logprob,
    output,
    request,
    run_to_end,
)
from tests.engine.piece_tokenizer import PIECES, PieceTokenizer

from espalier.constrain.canonical import Canonicaliser
from espalier.constrain.compiler import compiler_of
from espalier.constrain.guide import Guide
from espalier.constraint import Constraint, ConstraintKind
from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.request import EngineRequest, RequestOutput
from espalier.engine.sampler import SampledToken, SampleRow
from espalier.engine.sampler_reference import ReferenceSampler
from espalier.types import FinishReason

TOKENIZER = PieceTokenizer()
FORMS = (
    r"\{ab[ab]{1,3},(cd|de)ee\}",
    r"\{a(b|c)*,abcd\},\{a[de]{2}\}",
    r"(abc,|abd,){1,3}ee",
    r"abcdabcd",
    r"[a-e]{0,4}\},abc[a-e]{0,4}",
    r"(ab(cd)?,)*e{1,5}",
    r"a?bcdeee\}(,\{a)*",
)


def regex(pattern: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, pattern)


def make_core(num_slots: int = 256, **options: object) -> EngineCore:
    values: dict[str, object] = {"num_slots": num_slots, "context_length": 4096, **options}
    chosen = EngineOptions(**values)  # type: ignore[arg-type]
    executor = HashExecutor(num_slots, chosen.max_step_rows)
    return EngineCore(executor, TOKENIZER, ReferenceSampler(VOCAB_SIZE), chosen)


def constrained(name: str, prompt: list[int], pattern: str, **values: object) -> EngineRequest:
    asked = request(name, prompt, **{"max_new_tokens": 24, **values})  # type: ignore[arg-type]
    return replace(asked, constraint=regex(pattern))


def naive(asked: EngineRequest) -> RequestOutput:
    """What a constrained request must give."""
    assert asked.constraint is not None
    sampling = asked.sampling
    grammar = compiler_of(TOKENIZER, VOCAB_SIZE).compile(asked.constraint)
    guide = Guide(grammar.matcher(), Canonicaliser(TOKENIZER), sampling.max_new_tokens)
    output_ids = list(guide.start().token_ids)
    shown = 0  # characters that were looked through for stops
    sampler = ReferenceSampler(VOCAB_SIZE)
    while True:
        whole = "".join(PIECES[token_id] for token_id in output_ids)
        stop = naive_stop(whole, shown, sampling.stop)
        if stop is not None:
            return naive_stopped(asked, output_ids, *stop)
        shown = len(whole)
        if guide.must_stop:
            return naive_ended(asked, output_ids, FinishReason("stop"))
        if len(output_ids) >= sampling.max_new_tokens:
            return naive_ended(asked, output_ids, FinishReason("length", length=len(output_ids)))
        tokens = [*asked.input_ids, *output_ids]
        row = SampleRow(sampling, asked.seed, len(tokens), (), output_ids.copy(), ())
        row.mask = guide.mask()
        (sampled,) = sampler.sample(logits_of(history_hash(tokens))[None], [row])
        assert isinstance(sampled, SampledToken), sampled
        if sampled.token_id == EOS_ID:
            output_ids.append(EOS_ID)
            return naive_ended(asked, output_ids, FinishReason("stop", matched=EOS_ID))
        change = guide.take(sampled.token_id)
        output_ids[len(output_ids) - change.num_removed :] = change.token_ids


def naive_stop(text: str, shown: int, stops: tuple[str, ...]) -> tuple[int, str] | None:
    """Where the first stop ends that is complete after `shown` characters, and which it is."""
    for end in range(shown + 1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return end, max(found, key=len)
    return None


def naive_stopped(
    asked: EngineRequest, output_ids: list[int], end: int, stop: str
) -> RequestOutput:
    kept: list[int] = []
    for token_id in output_ids:
        if sum(len(PIECES[kept_id]) for kept_id in kept) >= end:
            break
        kept.append(token_id)
    whole = "".join(PIECES[token_id] for token_id in kept)
    reason = FinishReason("stop", matched=stop)
    return RequestOutput(asked.request_id, whole[: end - len(stop)], kept, finish_reason=reason)


def naive_ended(asked: EngineRequest, output_ids: list[int], reason: FinishReason) -> RequestOutput:
    text = "".join(PIECES[token_id] for token_id in output_ids if token_id != EOS_ID)
    return RequestOutput(asked.request_id, text, output_ids, finish_reason=reason)


def assert_equal_to_naive(found: RequestOutput, asked: EngineRequest) -> None:
    expected = naive(asked)
    assert (found.output_ids, found.text) == (expected.output_ids, expected.text)
    assert found.finish_reason == expected.finish_reason
    if found.output_logprobs is not None:
        tokens = [*asked.input_ids, *found.output_ids]
        entries = found.output_logprobs.tokens
        assert [entry.token_id for entry in entries] == found.output_ids
        for index, entry in enumerate(entries):
            position = len(asked.input_ids) + index
            assert entry.logprob == pytest.approx(naive_logprob(tokens, position), abs=1e-5)
    if found.input_logprobs is not None:
        start = asked.logprob_start_len
        ids = [entry.token_id for entry in found.input_logprobs.tokens]
        assert ids == list(asked.input_ids[start:])


@st.composite
def requests(draw: st.DrawFn) -> EngineRequest:
    prompt = draw(st.lists(st.integers(1, 3), min_size=1, max_size=10))
    start = draw(st.sampled_from([-2, -2, -1, 0, len(prompt)]))
    return constrained(
        "",
        prompt,
        draw(st.sampled_from(FORMS)),
        temperature=draw(st.sampled_from([0.0, 1.0])),
        max_new_tokens=draw(st.integers(1, 20)),
        stop=draw(st.sampled_from([(), (), ("ab",), ("d", "},{")])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.0, 1.0])),
        seed=draw(st.integers(0, 5)),
        return_logprob=start >= -1,
        logprob_start_len=max(start, -1),
    )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(requests(), min_size=1, max_size=8),
    st.sampled_from([36, 48, 200]),
    st.sampled_from([3, 16]),
    st.booleans(),
)
def test_every_output_is_the_naive_one_however_it_is_computed(
    asked: list[EngineRequest], num_slots: int, chunk_tokens: int, jumps: bool
) -> None:
    core = make_core(num_slots, chunk_tokens=chunk_tokens, prompt_logit_rows=3, jump_forward=jumps)
    named = [replace(one, request_id=str(index)) for index, one in enumerate(asked)]
    for one in named:
        core.add_request(one)
    events = run_to_end(core)
    for one in named:
        assert_equal_to_naive(output(events, one.request_id), one)
    assert core.stats().slots_locked == 0


def test_forced_tokens_take_one_step_together_and_one_by_one_without_jumps() -> None:
    asked = constrained("x", [1, 2], r"abcdabcd[ab]{3}ee\}", temperature=1.0, seed=3)
    steps = {}
    for jumps in (True, False):
        core = make_core(jump_forward=jumps)
        core.add_request(asked)
        found = output(run_to_end(core), "x")
        assert re.fullmatch(r"abcdabcd[ab]{3}ee\}", found.text)
        assert found.forced_tokens > 4
        executor = core.executor
        assert isinstance(executor, HashExecutor)
        steps[jumps] = executor.num_steps
        assert core.stats().totals.forced_tokens == found.forced_tokens
    assert steps[False] >= steps[True] + 4


def test_an_output_that_is_all_forced_needs_its_prompt_only() -> None:
    core = make_core()
    core.add_request(constrained("x", [1, 2, 3], "abcdabcd"))
    found = output(run_to_end(core), "x")
    assert found.text == "abcdabcd"
    assert found.finish_reason == FinishReason("stop")
    assert found.forced_tokens == len(found.output_ids) == 4
    executor = core.executor
    assert isinstance(executor, HashExecutor)
    assert executor.num_steps == 1
    assert executor.step_logit_rows == [0]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(FORMS), st.integers(0, 10_000))
def test_tokens_of_whole_outputs_are_those_of_their_text(pattern: str, seed: int) -> None:
    core = make_core()
    core.add_request(constrained("x", [1], pattern, temperature=1.0, seed=seed, max_new_tokens=60))
    found = output(run_to_end(core), "x")
    assert found.finish_reason is not None
    if found.finish_reason.type == "stop":
        assert re.fullmatch(pattern, found.text)
        ids = [token_id for token_id in found.output_ids if token_id != EOS_ID]
        assert ids == TOKENIZER.encode(found.text)
        assert found.text_token_ids == ids


def test_without_canonical_tokens_nothing_is_forced_and_the_text_still_matches() -> None:
    core = make_core(canonical=False)
    for seed in range(20):
        core.add_request(
            constrained(str(seed), [1], FORMS[0], temperature=1.0, seed=seed, max_new_tokens=60)
        )
    events = run_to_end(core)
    for seed in range(20):
        found = output(events, str(seed))
        assert re.fullmatch(FORMS[0], found.text)
        assert found.forced_tokens == 0
