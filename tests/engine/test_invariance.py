"""Invariant 1 of the design on the real model: the same request gives the same bits, always.

Cached or computed, alone or in a batch of strangers, in chunks of any size, before and after
eviction and retraction, greedy and seeded, in every format and instruction set: tokens and logprobs
equal those of the request run alone on an empty cache, exactly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.engine.fakes import output, run_to_end

from espalier import _native
from espalier.constraint import Constraint, ConstraintKind
from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.request import EngineRequest, LogprobTable, RequestOutput
from espalier.engine.sampler import Sampler
from espalier.exec.executor import Executor, ExecutorOptions
from espalier.exec.factory import make_executor
from espalier.loaders.model import LoadedModel, load_model
from espalier.types import SamplingParams

PROMPT = (
    "A gardener trains a pear tree along a wall. In the first winter the leader is cut back to "
    "three buds; in summer two shoots are tied down to the left and right, and the third grows on. "
    "Every year adds a tier, and after six years the frame is full: twelve arms, one trunk, and "
    "fruit that the sun reaches from all sides. Question: why does the gardener tie the shoots "
    "down, and what happens to the ones that are left to grow as they like?\nAnswer:"
)
NUM_SLOTS = 4096
SCORED_FROM = 50
FORM = r' \{"reason": "[a-z ]{4,9}", "shoots": "(tied down|left alone)", "arms": [0-9]{1,2}\}'
# Not portable, which takes minutes here; tests/exec/test_native_models.py compares its bits.
LESSER_ISAS = [isa for isa in _native.available_isas().split(", ")[:-1] if isa != "portable"]
FORMATS = [  # weights, keys and values, instruction set
    ("auto", "auto", "auto"),
    ("int8", "int8", "auto"),
    ("bf16", "bf16", "auto"),
    ("f32", "f32", "auto"),
    *(("auto", "auto", isa) for isa in LESSER_ISAS),
]
# (prompt tokens, new tokens) of what is slow; all tests need more than 64 prompt tokens.
SMALL = (68, 5)


@dataclass(frozen=True)
class Subject:
    """A model in an executor, the requests under test and their results alone."""

    model: LoadedModel
    executor: Executor
    requests: tuple[EngineRequest, ...]
    expected: dict[str, RequestOutput]

    def core(self, **options: int) -> EngineCore:
        """An engine with an empty cache over the same executor."""
        return new_core(self.model, self.executor, **options)

    def check(self, got: RequestOutput, name: str | None = None) -> None:
        """The result has the bits of the request run alone."""
        assert bits(got) == bits(self.expected[name or got.request_id])


def new_core(model: LoadedModel, executor: Executor, **options: int) -> EngineCore:
    defaults = EngineOptions(num_slots=NUM_SLOTS, context_length=2048)
    sampler = Sampler(model.plan.geometry.vocab_size)
    changed = replace(defaults, **options)  # type: ignore[arg-type]
    return EngineCore(executor, model.tokenizer, sampler, changed)


def bits(got: RequestOutput) -> tuple[object, ...]:
    """All that must never change; floats are compared exactly."""
    return (got.output_ids, got.text, table(got.input_logprobs), table(got.output_logprobs))


def table(values: LogprobTable | None) -> object:
    if values is None:
        return None
    return (
        [(entry.token_id, entry.logprob) for entry in values.tokens],
        [[(entry.token_id, entry.logprob) for entry in row] for row in values.top],
    )


def run(core: EngineCore, *requests: EngineRequest) -> list[RequestOutput]:
    for asked in requests:
        core.add_request(asked)
    events = run_to_end(core)
    return [output(events, asked.request_id) for asked in requests]


def subject_requests(ids: tuple[int, ...], num_new: int) -> tuple[EngineRequest, ...]:
    """Greedy and seeded with logprobs, one whose prompt is scored, one with forced tokens."""
    greedy = SamplingParams(temperature=0.0, max_new_tokens=num_new, ignore_eos=True)
    seeded = replace(greedy, temperature=0.9, top_p=0.95, frequency_penalty=0.3)
    return (
        EngineRequest("greedy", ids, greedy, return_logprob=True, top_logprobs_num=3),
        EngineRequest("seeded", ids, seeded, seed=1234, return_logprob=True),
        EngineRequest(
            "scored",
            ids,
            replace(seeded, max_new_tokens=2),
            seed=99,
            return_logprob=True,
            logprob_start_len=SCORED_FROM,
            top_logprobs_num=2,
        ),
        EngineRequest(
            "formed",
            ids,
            replace(seeded, max_new_tokens=12 + num_new),
            seed=7,
            return_logprob=True,
            top_logprobs_num=2,
            constraint=Constraint(ConstraintKind.REGEX, FORM),
        ),
    )


@pytest.fixture(scope="module", params=FORMATS, ids="-".join)
def subject(request: pytest.FixtureRequest, smollm2_path: Path) -> Iterator[Subject]:
    model = load_model(smollm2_path)
    weights, kv_dtype, isa = request.param
    options = ExecutorOptions(
        num_slots=NUM_SLOTS, weights=weights, kv_dtype=kv_dtype, isa=isa, max_rows=1024
    )
    executor = make_executor("native", model.plan, model.weights, options)
    num_prompt, num_new = SMALL if weights == "f32" or isa != "auto" else (90, 12)
    ids = tuple(model.tokenizer.encode(PROMPT))[:num_prompt]
    assert len(ids) == num_prompt
    requests = subject_requests(ids, num_new)
    expected = {}
    for asked in requests:
        (expected[asked.request_id],) = run(new_core(model, executor), asked)
    yield Subject(model, executor, requests, expected)
    executor.close()


def strangers(count: int, seed: int, num_new: int = 8) -> list[EngineRequest]:
    """Requests of random tokens, lengths and settings."""
    rng = random.Random(seed)
    return [
        EngineRequest(
            f"stranger{seed}.{number}",
            tuple(rng.randrange(300, 40_000) for _ in range(rng.randint(3, 60))),
            SamplingParams(
                temperature=rng.choice([0.0, 1.3]), max_new_tokens=num_new, ignore_eos=True
            ),
            seed=number,
        )
        for number in range(count)
    ]


def test_cached_prefixes_of_any_length_change_nothing(subject: Subject) -> None:
    core = subject.core()
    ids = subject.requests[0].input_ids
    for cached in (1, 63, 64, 65, len(ids) - 1):
        run(core, EngineRequest("warm", ids[:cached], SamplingParams(max_new_tokens=0)))
        asked = subject.requests[cached % 2]
        (got,) = run(core, asked)
        assert got.cached_tokens == cached
        subject.check(got)
        assert core.flush_cache()


def test_a_request_that_is_cached_whole_gives_the_same_bits_again(subject: Subject) -> None:
    core = subject.core()
    run(core, *subject.requests)
    again = run(core, *subject.requests)
    length = len(subject.requests[0].input_ids)
    cached = [length - 1, length - 1, SCORED_FROM - 1, length - 1]
    assert [got.cached_tokens for got in again] == cached
    for got in again:
        subject.check(got)


def test_a_batch_of_strangers_changes_nothing(subject: Subject) -> None:
    core = subject.core()
    crowd = strangers(16, seed=1)
    for asked in crowd[:9]:
        core.add_request(asked)
    core.step()
    core.step()
    for asked in (*subject.requests, *crowd[9:]):
        core.add_request(asked)
    events = run_to_end(core)
    for asked in subject.requests:
        subject.check(output(events, asked.request_id))


@pytest.mark.parametrize("chunk_tokens", [1, 7, 64])
def test_chunks_of_any_size_change_nothing(subject: Subject, chunk_tokens: int) -> None:
    for got in run(subject.core(chunk_tokens=chunk_tokens), *subject.requests):
        subject.check(got)


def test_few_logit_rows_at_a_time_change_nothing(subject: Subject) -> None:
    for got in run(subject.core(prompt_logit_rows=5), *subject.requests[2:]):
        subject.check(got)


def test_forced_tokens_one_by_one_change_nothing(subject: Subject) -> None:
    formed = subject.requests[3]
    expected = subject.expected["formed"]
    assert expected.forced_tokens >= 8
    for asked in (formed, replace(formed, return_logprob=False, top_logprobs_num=0)):
        (got,) = run(subject.core(jump_forward=False), asked)
        assert (got.output_ids, got.text) == (expected.output_ids, expected.text)
        if asked.return_logprob:
            subject.check(got)
    (got,) = run(subject.core(), replace(formed, return_logprob=False, top_logprobs_num=0))
    assert (got.output_ids, got.text) == (expected.output_ids, expected.text)


def test_eviction_changes_nothing(subject: Subject) -> None:
    length = len(subject.requests[0].input_ids)
    core = subject.core(num_slots=length + 60)
    run(core, subject.requests[1])
    for size in (100, length + 50):
        filler = tuple(range(1000, 1000 + size))
        run(core, EngineRequest("filler", filler, SamplingParams(max_new_tokens=0)))
        (got,) = run(core, subject.requests[0])
        assert got.cached_tokens < length - 1  # a part of it is gone
        subject.check(got)


def test_retraction_changes_nothing(subject: Subject) -> None:
    older = [
        replace(
            stranger,
            input_ids=(*stranger.input_ids, *range(500, 520))[:20],
            sampling=replace(stranger.sampling, max_new_tokens=24),
        )
        for stranger in strangers(2, seed=5)
    ]
    for asked in subject.requests[:2]:
        # Room for the older two and this one now, and not for what they will have generated.
        core = subject.core(num_slots=len(asked.input_ids) + 46, decode_reserve_tokens=0)
        for one in older:
            core.add_request(one)
        core.step()
        core.add_request(asked)
        got = output(run_to_end(core), asked.request_id)
        assert got.retractions > 0
        subject.check(got)
