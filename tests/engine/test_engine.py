from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.engine.fakes import (
    EOS_ID,
    VOCAB_SIZE,
    HashExecutor,
    LetterTokenizer,
    executor_of,
    failure,
    make_core,
    naive_logprob,
    naive_output,
    output,
    request,
    run_to_end,
)

from espalier.constrain.guide import Guide
from espalier.constraint import Constraint, ConstraintKind
from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.request import EngineRequest, RequestOutput
from espalier.engine.sampler import SampleResult, SampleRow
from espalier.engine.sampler_reference import ReferenceSampler
from espalier.errors import (
    BackendError,
    CapacityError,
    PromptError,
    RequestCancelledError,
    SamplingError,
    UnsupportedError,
    UserInputError,
)
from espalier.types import FinishReason, SamplingParams


def run(core: EngineCore, *requests: EngineRequest) -> list[RequestOutput]:
    """Submits at the same moment and runs to the end."""
    for asked in requests:
        core.add_request(asked)
    events = run_to_end(core)
    return [output(events, asked.request_id) for asked in requests]


# --- sharing and its accounts ---------------------------------------------------------------------


def test_prompt_and_output_of_a_request_are_cached_for_the_next_turn() -> None:
    core = make_core()
    (first,) = run(core, request("a", [1, 2, 3, 4], max_new_tokens=6, ignore_eos=True))
    assert first.cached_tokens == 0
    turn = [1, 2, 3, 4, *first.output_ids, 5]
    (second,) = run(core, request("b", turn))
    assert second.cached_tokens == 4 + 6 - 1  # the last output token was never fed


def test_last_prompt_token_is_computed_when_all_is_cached() -> None:
    core = make_core()
    first, second = (run(core, request(name, [1, 2, 3]))[0] for name in ("a", "b"))
    assert second.cached_tokens == 2
    assert second.output_ids == first.output_ids


@pytest.mark.parametrize("chunk_tokens", [1, 7, 64, 512])
def test_prefix_of_a_fork_is_computed_once_when_branches_come_together(chunk_tokens: int) -> None:
    core = make_core(4096, chunk_tokens=chunk_tokens, min_shared_gain=1)
    prefix = [(7 * i) % 15 + 1 for i in range(90)]
    branches = [
        request(f"b{i}", [*prefix, i % 16, i // 16, 3, 3], max_new_tokens=0) for i in range(64)
    ]
    outputs = run(core, *branches)
    assert outputs[0].cached_tokens == 0
    assert all(got.cached_tokens >= len(prefix) for got in outputs[1:])
    tree = {tuple(b.input_ids[:end]) for b in branches for end in range(1, len(b.input_ids) + 1)}
    assert core.stats().totals.computed_rows == len(tree)


def test_equal_prompts_that_come_together_are_computed_once() -> None:
    core = make_core()
    prompt = list(range(1, 13))
    outputs = run(core, *(request(f"n{i}", prompt, seed=i, temperature=1.0) for i in range(8)))
    assert [got.cached_tokens for got in outputs] == [0] + [len(prompt) - 1] * 7
    assert len({tuple(got.output_ids) for got in outputs}) > 1


def test_a_short_fork_prefix_is_shared_too() -> None:
    core = make_core()
    outputs = run(core, request("a", [1, 2, *[3] * 90]), request("b", [1, 2, *[4] * 90]))
    assert [got.cached_tokens for got in outputs] == [0, 2]


def test_without_in_flight_sharing_equal_prompts_are_computed_side_by_side() -> None:
    core = make_core(in_flight_sharing=False)
    outputs = run(core, *(request(f"r{i}", [1, 2, 3, 4]) for i in range(3)))
    assert [got.cached_tokens for got in outputs] == [0, 0, 0]
    assert core.stats().slots_evictable <= 4 + 8


def test_without_prefix_cache_nothing_is_kept() -> None:
    core = make_core(prefix_cache=False)
    for name in ("a", "b"):
        (got,) = run(core, request(name, [1, 2, 3, 4]))
        assert got.cached_tokens == 0
        assert core.stats().slots_free == 256


def test_namespaces_share_nothing() -> None:
    core = make_core()
    run(core, request("a", [1, 2, 3, 4], namespace="one"))
    (other,) = run(core, request("b", [1, 2, 3, 4], namespace="two"))
    (same,) = run(core, request("c", [1, 2, 3, 4], namespace="one"))
    assert (other.cached_tokens, same.cached_tokens) == (0, 3)


def test_cached_tokens_are_those_of_the_first_admission_after_a_retraction() -> None:
    core = make_core(40, decode_reserve_tokens=0, max_running_requests=4)
    requests = [request(f"r{i}", [i + 1] * 8, max_new_tokens=20, ignore_eos=True) for i in range(3)]
    outputs = run(core, *requests)
    assert sum(got.retractions for got in outputs) > 0
    assert outputs[0].retractions == 0  # the oldest always goes on
    for asked, got in zip(requests, outputs, strict=True):
        assert got.cached_tokens == 0
        assert got.output_ids == naive_output(asked).output_ids


def test_flush_keeps_what_a_running_request_uses() -> None:
    core = make_core()
    run(core, request("old", [5, 6, 7]))
    core.add_request(request("new", [1, 2, 3], ignore_eos=True))
    core.step()
    assert not core.flush_cache()
    core.check_invariants()
    got = output(run_to_end(core), "new")
    assert got.output_ids == naive_output(request("new", [1, 2, 3], ignore_eos=True)).output_ids
    assert core.flush_cache()


# --- ends -----------------------------------------------------------------------------------------


def test_prefill_only_request_ends_with_length_zero_and_is_cached() -> None:
    core = make_core()
    (got,) = run(core, request("p", [1, 2, 3], max_new_tokens=0))
    assert got.finish_reason == FinishReason("length", length=0)
    assert (got.text, got.output_ids, got.ttft_s) == ("", [], None)
    assert executor_of(core).step_logit_rows == [0]
    (after,) = run(core, request("q", [1, 2, 3, 4]))
    assert after.cached_tokens == 3


def test_stop_token_ends_and_is_named_and_not_in_the_text() -> None:
    plain = naive_output(request("r", [1, 2], ignore_eos=True))
    stop_id = plain.output_ids[3]
    first = plain.output_ids.index(stop_id)
    core = make_core()
    got, kept = run(
        core,
        request("r", [1, 2], ignore_eos=True, stop_token_ids=(stop_id,)),
        request("k", [1, 2], ignore_eos=True, stop_token_ids=(stop_id,), no_stop_trim=True),
    )
    assert got.finish_reason == FinishReason("stop", matched=stop_id)
    assert got.output_ids == plain.output_ids[: first + 1]
    assert got.text == plain.text[:first]
    assert got.text_token_ids == plain.output_ids[:first]
    assert kept.text == plain.text[: first + 1]


def test_end_tokens_are_banned_below_min_new_tokens() -> None:
    core = make_core()
    asked = [
        request(f"r{i}", [i + 1], temperature=1.0, seed=i, max_new_tokens=12, min_new_tokens=9)
        for i in range(8)
    ]
    for got in run(core, *asked):
        assert len(got.output_ids) >= 9
        assert EOS_ID not in got.output_ids[:9]


# --- logprobs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("options", [{}, {"chunk_tokens": 1}, {"prompt_logit_rows": 1}])
def test_input_logprobs_are_exact_whatever_is_cached(start: int, options: dict[str, int]) -> None:
    core = make_core(**options)
    prompt = [3, 1, 4, 1, 5, 9]
    run(core, request("warm", prompt))
    (got,) = run(core, request("r", prompt, return_logprob=True, logprob_start_len=start))
    assert got.input_logprobs is not None
    assert [(entry.token_id, entry.logprob) for entry in got.input_logprobs.tokens] == [
        (prompt[p], naive_logprob(prompt, p) if p else None) for p in range(start, len(prompt))
    ]
    assert got.cached_tokens == min(max(0, start - 1), len(prompt) - 1)


def test_top_and_chosen_logprobs_run_in_step_with_the_tokens() -> None:
    core = make_core()
    asked = EngineRequest(
        "r",
        (1, 2, 3, 4),
        SamplingParams(max_new_tokens=3, temperature=0.0, ignore_eos=True),
        return_logprob=True,
        logprob_start_len=0,
        top_logprobs_num=2,
        token_ids_logprob=(7, 5),
    )
    (got,) = run(core, asked)
    tables = (got.input_logprobs, got.output_logprobs)
    for table, length in zip(tables, (4, 3), strict=True):
        assert table is not None
        assert len(table.tokens) == len(table.top) == len(table.chosen_ids) == length
    assert tables[0] is not None
    assert tables[0].top[0] == []
    assert tables[1] is not None
    for token, top, chosen in zip(
        tables[1].tokens, tables[1].top, tables[1].chosen_ids, strict=True
    ):
        assert top[0].token_id == token.token_id  # greedy
        assert top[0].logprob == token.logprob
        assert [entry.token_id for entry in chosen] == [7, 5]


def test_scoring_asks_no_more_logits_in_a_step_than_allowed() -> None:
    core = make_core(1024, prompt_logit_rows=10)
    prompt = [i % 13 for i in range(95)]
    run(
        core,
        request("a", prompt, return_logprob=True, logprob_start_len=0, max_new_tokens=0),
        request("b", prompt[::-1], return_logprob=True, logprob_start_len=3, max_new_tokens=2),
    )
    assert max(executor_of(core).step_logit_rows) <= 10 + 2


# --- failures -------------------------------------------------------------------------------------

# Values that would end the engine's loop, or fail in native code, if they came so far.
ODD_FIELDS: list[tuple[str, Any, type[Exception]]] = [
    ("logprob_start_len", 0.5, SamplingError),
    ("logprob_start_len", "0", SamplingError),
    ("logprob_start_len", True, SamplingError),
    ("top_logprobs_num", 1.5, SamplingError),
    ("top_logprobs_num", None, SamplingError),
    ("token_ids_logprob", (1.5,), SamplingError),
    ("return_logprob", "yes", SamplingError),
    ("return_logprob", 1, SamplingError),
    ("seed", 1.5, SamplingError),
    ("seed", "x", SamplingError),
]
BAD_REQUESTS = [
    (request("r", []), PromptError, "empty"),
    (request("r", [1, VOCAB_SIZE, 2]), PromptError, f"holds {VOCAB_SIZE} at position 1"),
    (request("r", [-1]), PromptError, "-1 at position 0"),
    (request("r", [1 << 70]), PromptError, "not a token id"),
    (request("r", [1] * 65), PromptError, "65 tokens; the context holds 64"),
    (request("r", [1] * 60), PromptError, "at most 4 new tokens"),
    (request("r", [1] * 40), CapacityError, "needs 47 slots.*pool has 46"),
    (request("r", [1], n=2), UnsupportedError, "n=2"),
    (request("r", [1], stop_token_ids=(99,)), SamplingError, "token 99"),
    (request("r", [1], return_logprob=True, logprob_start_len=2), SamplingError, "start_len is 2"),
    (
        EngineRequest("r", (1,), SamplingParams(max_new_tokens=1), top_logprobs_num=-1),
        SamplingError,
        "top_logprobs_num is -1",
    ),
    (
        EngineRequest("r", (1,), SamplingParams(max_new_tokens=1), token_ids_logprob=(44,)),
        SamplingError,
        "token 44",
    ),
    *(
        (EngineRequest("r", (1,), SamplingParams(max_new_tokens=1), **{name: value}), error, name)
        for name, value, error in ODD_FIELDS
    ),
    (
        EngineRequest(
            "r",
            (1,),
            SamplingParams(max_new_tokens=1),
            constraint=Constraint(ConstraintKind.DTYPE, "complex"),
        ),
        UserInputError,
        "complex",
    ),
]


@pytest.mark.parametrize(("asked", "error", "message"), BAD_REQUESTS)
def test_a_bad_request_is_refused_with_its_numbers(
    asked: EngineRequest, error: type[Exception], message: str
) -> None:
    core = make_core(46, context_length=64)
    with pytest.raises(error, match=message):
        core.add_request(asked)
    assert not core.has_work


def test_the_largest_request_that_fits_alone_runs_among_others() -> None:
    core = make_core(46, context_length=64)
    asked = [
        request("big", [1] * 39, ignore_eos=True),
        request("small", [2] * 20, ignore_eos=True),
        request("other", [3] * 20, ignore_eos=True),
    ]
    for one, got in zip(asked, run(core, *asked), strict=True):
        assert got.output_ids == naive_output(one).output_ids


def test_cancel_ends_waiting_and_running_requests() -> None:
    core = make_core(max_running_requests=1)
    for name in ("a", "b", "c"):
        core.add_request(request(name, [1, 2, 3], ignore_eos=True))
    core.step()
    assert core.cancel("a")
    assert core.cancel("b")
    assert not core.cancel("a")
    assert not core.cancel("unknown")
    events = run_to_end(core)
    assert isinstance(failure(events, "a").error, RequestCancelledError)
    assert isinstance(failure(events, "b").error, RequestCancelledError)
    output(events, "c")
    assert core.stats().totals.requests_cancelled == 2


def test_executor_failure_fails_its_step_and_spares_the_waiting() -> None:
    core = make_core(max_running_requests=2)
    for number in range(3):
        core.add_request(request(f"r{number}", [number + 1, 5, 5]))
    executor_of(core).fail_at = {1}
    events = run_to_end(core)
    for name in ("r0", "r1"):
        error = failure(events, name).error
        assert isinstance(error, BackendError)
        assert isinstance(error.__cause__, RuntimeError)
    assert output(events, "r2").output_ids == naive_output(request("r2", [3, 5, 5])).output_ids


class FaultySampler(ReferenceSampler):
    """Raises for rows of seed 13."""

    def sample(self, logits: NDArray[np.float32], rows: Sequence[SampleRow]) -> list[SampleResult]:
        if any(row.seed == 13 for row in rows):
            raise ZeroDivisionError("a fault in the sampler")
        return super().sample(logits, rows)

    def token_logprobs(
        self,
        logits: NDArray[np.float32],
        token_ids: Sequence[int],
        top_logprobs_num: int = 0,
        token_ids_logprob: Sequence[int] = (),
    ) -> list[SampleResult]:
        raise ZeroDivisionError("a fault in scoring")


class FaultyMatcher:
    """Allows token 3 only; fails where its name says, at the second token."""

    is_complete = False

    def __init__(self, place: str) -> None:
        self.place = place
        self.num_accepted = 0

    @property
    def must_stop(self) -> bool:
        return self.place in ("stop", "early") and self.num_accepted == 2

    @property
    def state_key(self) -> None:
        return None

    @property
    def num_allowed(self) -> int:
        return 1

    def allowed_ids(self) -> NDArray[np.int32]:
        return np.array([3], dtype=np.int32)

    def mask(self) -> NDArray[np.uint32]:
        if self.place == "mask" and self.num_accepted == 1:
            raise ZeroDivisionError("a fault in the mask")
        return np.array([0 if self.place == "nothing" else 1 << 3], dtype=np.uint32)

    def forced_bytes(self) -> bytes:
        return b""

    def accept(self, token_id: int) -> None:
        self.num_accepted += 1
        if self.place == "accept" and self.num_accepted == 2:
            raise ZeroDivisionError("a fault in accept")

    def rollback(self, num_tokens: int) -> None:
        raise NotImplementedError


def add_matched(core: EngineCore, asked: EngineRequest) -> None:
    """Adds a request with a matcher that is faulty where the request's id says."""
    state = core.prepare(asked)
    state.guide = Guide(FaultyMatcher(asked.request_id), None, 100)
    core.add(state)


def test_a_fault_of_one_request_ends_that_request_alone() -> None:
    options = EngineOptions(num_slots=256, context_length=256)
    core = EngineCore(HashExecutor(256), LetterTokenizer(), FaultySampler(VOCAB_SIZE), options)
    good = [request(f"good{i}", [i + 1, 2, 3]) for i in range(3)]
    bad = [
        request("sampler", [9, 9], seed=13),
        request("score", [8, 8, 8], return_logprob=True, logprob_start_len=0),
    ]
    for asked in (*good, *bad):
        core.add_request(asked)
    for name in ("mask", "accept", "nothing", "stop"):
        add_matched(core, request(name, [7, 6]))
    add_matched(core, request("early", [7, 6], min_new_tokens=3))
    events = run_to_end(core)
    for asked in good:
        assert output(events, asked.request_id).output_ids == naive_output(asked).output_ids
    for name in ("sampler", "score", "mask", "accept"):
        error = failure(events, name).error
        assert isinstance(error, BackendError)
        assert isinstance(error.__cause__, ZeroDivisionError)
    assert isinstance(failure(events, "nothing").error, SamplingError)
    early = failure(events, "early").error
    assert isinstance(early, SamplingError)
    assert "min_new_tokens is 3" in str(early)
    stopped = output(events, "stop")
    assert (stopped.output_ids, stopped.finish_reason) == ([3, 3], FinishReason("stop"))
    assert core.stats().slots_locked == 0


def test_a_dtype_that_no_token_can_spell_is_refused() -> None:
    core = make_core()
    sampling = SamplingParams(temperature=0.0, max_new_tokens=4)
    # The tokenizer's texts are single letters, so "True" and "False" cannot be spelled.
    with pytest.raises(UserInputError, match="cannot be met"):
        core.add_request(
            EngineRequest("r", (1,), sampling, constraint=Constraint(ConstraintKind.DTYPE, "bool"))
        )


@pytest.mark.parametrize("num_known", [1, 9, 16])
def test_tokens_that_the_tokenizer_does_not_know_are_never_sampled(num_known: int) -> None:
    core = EngineCore(
        HashExecutor(256),
        LetterTokenizer(num_known),
        ReferenceSampler(VOCAB_SIZE),
        EngineOptions(num_slots=256, context_length=256),
    )
    asked = [request(f"r{i}", [0], seed=i, temperature=2.0, ignore_eos=True) for i in range(9)]
    for got in run(core, *asked):
        assert max(got.output_ids) < num_known
    with pytest.raises(PromptError, match=f"0 to {num_known - 1}"):
        core.add_request(request("r", [num_known]))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_slots", 0),
        ("context_length", True),
        ("chunk_tokens", 0),
        ("max_running_requests", 2.5),
        ("schedule_policy", "fastest"),
        ("max_waiting_requests", -1),
    ],
)
def test_options_refuse_a_bad_value(name: str, value: object) -> None:
    with pytest.raises(UserInputError, match=name):
        EngineOptions(**{"num_slots": 8, "context_length": 8, name: value})  # type: ignore[arg-type]


def test_engine_refuses_more_slots_than_the_executor_has() -> None:
    options = EngineOptions(num_slots=9, context_length=8)
    with pytest.raises(UserInputError, match="pool has 8"):
        EngineCore(HashExecutor(8), LetterTokenizer(), ReferenceSampler(VOCAB_SIZE), options)
