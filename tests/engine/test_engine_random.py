"""Random loads on tiny pools: every result equals the naive one, and the books always balance."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.fakes import executor_of, make_core, naive_logprob, naive_output, request

from espalier.engine.engine import EngineCore
from espalier.engine.options import SchedulePolicy
from espalier.engine.request import EngineEvent, EngineRequest, RequestFailure, RequestOutput
from espalier.errors import BackendError, RequestCancelledError

POOL_SIZES = (24, 30, 48, 200)


@dataclass(frozen=True)
class Add:
    asked: EngineRequest


@dataclass(frozen=True)
class Cancel:
    which: int


@dataclass(frozen=True)
class Step:
    count: int


@dataclass(frozen=True)
class Flush:
    pass


@dataclass(frozen=True)
class Fail:
    """The executor fails at its next step."""


Action = Add | Cancel | Step | Flush | Fail


@st.composite
def requests(draw: st.DrawFn) -> EngineRequest:
    # Few tokens and few lengths, so that prefixes are often shared.
    prompt = draw(st.lists(st.integers(1, 3), min_size=1, max_size=14))
    max_new_tokens = draw(st.integers(0, 10))
    start = draw(st.sampled_from([-1, -1, -1, 0, len(prompt) // 2, len(prompt)]))
    sampling: dict[str, object] = {
        "temperature": draw(st.sampled_from([0.0, 1.0])),
        "max_new_tokens": max_new_tokens,
        "ignore_eos": draw(st.booleans()),
        "stop": draw(st.sampled_from([(), ("ab",), ("c", "dd")])),
        "stop_regex": draw(st.sampled_from([(), (), ("a[bc]",), ("b.*d", "c{2}")])),
        "frequency_penalty": draw(st.sampled_from([0.0, 1.0])),
        "min_new_tokens": draw(st.sampled_from([0, min(2, max_new_tokens)])),
    }
    return request(
        "",
        prompt,
        seed=draw(st.integers(0, 3)),
        namespace=draw(st.sampled_from(["", "", "b"])),
        return_logprob=start >= 0,
        logprob_start_len=start,
        **sampling,
    )


ACTIONS = st.lists(
    st.one_of(
        requests().map(Add),
        requests().map(Add),
        st.integers(0, 30).map(Cancel),
        st.integers(1, 6).map(Step),
        st.just(Flush()),
    ),
    min_size=1,
    max_size=40,
)
OPTIONS = st.fixed_dictionaries(
    {
        "num_slots": st.sampled_from(POOL_SIZES),
        "schedule_policy": st.sampled_from(list(SchedulePolicy)),
        "chunk_tokens": st.sampled_from([1, 3, 7, 64]),
        "max_running_requests": st.sampled_from([1, 3, 16]),
        "prompt_logit_rows": st.sampled_from([1, 4, 64]),
        "max_passed_over": st.sampled_from([0, 2, 256]),
        "decode_reserve_tokens": st.sampled_from([0, 2, 16]),
        "min_shared_gain": st.sampled_from([1, 2]),
        "prefix_cache": st.sampled_from([True, True, False]),
        "in_flight_sharing": st.booleans(),
    }
)


class Load:
    """Plays actions on an engine and keeps what it was asked and what it gave."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.asked: dict[str, EngineRequest] = {}
        self.ended: dict[str, EngineEvent] = {}
        self.may_fail: set[str] = set()  # alive in a step that failed
        self.cancelled: set[str] = set()

    def play(self, action: Action) -> None:
        if isinstance(action, Add):
            request_id = f"r{len(self.asked)}"
            old = action.asked
            asked = request(request_id, old.input_ids)
            for name in ("sampling", "seed", "return_logprob", "logprob_start_len", "namespace"):
                object.__setattr__(asked, name, getattr(old, name))
            self.asked[request_id] = asked
            self.core.add_request(asked, is_streamed=len(self.asked) % 2 == 0)
        elif isinstance(action, Cancel):
            request_id = f"r{action.which}"
            if self.core.cancel(request_id):
                self.cancelled.add(request_id)
        elif isinstance(action, Step):
            for _ in range(action.count):
                self.step()
        elif isinstance(action, Flush):
            self.core.flush_cache()
        else:
            executor = executor_of(self.core)
            executor.fail_at.add(executor.num_steps)

    def step(self) -> None:
        executor = executor_of(self.core)
        if executor.num_steps in executor.fail_at:
            self.may_fail |= set(self.asked) - set(self.ended)
        for event in self.core.step():
            assert event.request_id not in self.ended, "an event after the end"
            if isinstance(event, RequestFailure) or event.finish_reason is not None:
                self.ended[event.request_id] = event
        self.core.check_invariants()
        stats = self.core.stats()
        assert stats.slots_free + stats.slots_evictable + stats.slots_locked == stats.slots_total

    def drain(self) -> None:
        for _ in range(20_000):
            if not self.core.has_work:
                break
            self.step()
        else:
            raise AssertionError(f"requests starve: {self.core.stats()}")
        self.step()  # gives the events of cancellations after the last step
        assert set(self.ended) == set(self.asked)

    def check(self) -> None:
        for request_id, asked in self.asked.items():
            event = self.ended[request_id]
            if isinstance(event, RequestFailure):
                self.check_failure(event)
            else:
                check_output(asked, event)

    def check_failure(self, event: RequestFailure) -> None:
        if event.request_id in self.cancelled:
            assert isinstance(event.error, RequestCancelledError)
        else:
            assert event.request_id in self.may_fail
            assert isinstance(event.error, BackendError)
            assert isinstance(event.error.__cause__, RuntimeError)


def check_output(asked: EngineRequest, got: RequestOutput) -> None:
    """The result is the naive one, with every logprob that was asked for."""
    naive = naive_output(asked)
    assert (got.text, got.output_ids, got.text_token_ids, got.finish_reason) == (
        naive.text,
        naive.output_ids,
        naive.text_token_ids,
        naive.finish_reason,
    )
    assert got.prompt_tokens == len(asked.input_ids)
    assert 0 <= got.cached_tokens < got.prompt_tokens
    tokens = [*asked.input_ids, *got.output_ids]
    if not asked.return_logprob:
        assert got.input_logprobs is None
        assert got.output_logprobs is None
        return
    assert got.output_logprobs is not None
    assert [(entry.token_id, entry.logprob) for entry in got.output_logprobs.tokens] == [
        (tokens[position], naive_logprob(tokens, position))
        for position in range(len(asked.input_ids), len(tokens))
    ]
    assert got.input_logprobs is not None
    assert [(entry.token_id, entry.logprob) for entry in got.input_logprobs.tokens] == [
        (tokens[position], naive_logprob(tokens, position) if position else None)
        for position in range(asked.logprob_start_len, len(asked.input_ids))
    ]


def play_all(options: dict[str, object], actions: list[Action]) -> Load:
    load = Load(make_core(**options))  # type: ignore[arg-type]
    for action in actions:
        load.play(action)
    load.drain()
    load.check()
    stats = load.core.stats()
    assert stats.slots_locked == 0, "slots leaked"
    assert load.core.flush_cache()
    assert load.core.stats().slots_free == stats.slots_total
    return load


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(OPTIONS, ACTIONS)
def test_t124_results_are_the_naive_ones_and_the_cache_adds_up_under_random_load(
    options: dict[str, object], actions: list[Action]
) -> None:
    load = play_all(options, actions)
    totals = load.core.stats().totals
    if not load.cancelled and totals.retractions == 0:
        # Every prompt token is cached or computed, every output token but the last is computed.
        num_fed = sum(
            max(0, len(event.output_ids) - 1)
            for event in load.ended.values()
            if isinstance(event, RequestOutput)
        )
        assert totals.computed_rows == totals.prompt_tokens - totals.cached_tokens + num_fed


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    OPTIONS,
    st.lists(st.one_of(requests().map(Add), st.just(Fail()), st.just(Step(1))), max_size=30),
)
def test_executor_failures_end_the_requests_of_their_step_alone(
    options: dict[str, object], actions: list[Action]
) -> None:
    play_all(options, actions)
