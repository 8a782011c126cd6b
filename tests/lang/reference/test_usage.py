"""Reference section 8: what calls cost, for each call, state, fork, program and batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.backends.toy import toy_backend

import espalier
from espalier.backends.base import GenerateCall, GenerateResult, OnDelta, Sample
from espalier.backends.local import LocalBackend
from espalier.backends.scripted import ScriptedBackend
from espalier.cli.report import make_report
from espalier.lang.api import gen, select
from espalier.lang.function import function
from espalier.lang.state import ProgramState
from espalier.lang.usage import record_usage, usage_of
from espalier.types import Usage

TOLD = {
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "forced_tokens",
    "speculation_hits",
    "finish_reason",
}


@function
def program(s: ProgramState) -> None:
    s += "one two"
    forks = s.fork(2)
    forks += " three" + gen("x")
    forks.join()
    s += " four" + select("c", ["a", "b"])


ANSWERS = {"three": "x y", "four": "a"}


class Untold(ScriptedBackend):
    """A service that tells nothing about its calls."""

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        samples = tuple(Sample("text", None, {}) for _ in range(call.sampling.n))
        return GenerateResult(samples, Usage(calls=1))


@pytest.fixture
def local() -> Iterator[LocalBackend]:
    backend = toy_backend()
    yield backend
    backend.shutdown()


def test_t62_each_meta_info_has_the_counts_on_every_backend(local: LocalBackend) -> None:
    @function
    def calls(s: ProgramState) -> None:
        s += "abc" + gen("one", max_tokens=3, ignore_eos=True)
        s += "d" + gen("many", n=2, max_tokens=2, ignore_eos=True)

    for backend in (local, ScriptedBackend("x y z"), Untold()):
        state = calls.run(backend=backend)
        one, many = state.get_meta_info("one"), state.get_meta_info("many")
        assert len(many) == 2
        assert all(meta.keys() >= TOLD for meta in (one, *many))
        told = [one[name] for name in ("prompt_tokens", "completion_tokens", "cached_tokens")]
        if isinstance(backend, Untold):
            assert told == [None] * 3
            assert one["forced_tokens"] is one["finish_reason"] is None
        else:
            assert told[1] == 3
            assert told[0] > 0
            assert told[2] == 0
            assert one["forced_tokens"] == 0
            assert one["finish_reason"]["type"] in ("length", "stop")
        assert one["speculation_hits"] is None  # no backend here speculates


def test_t62_forced_tokens_are_told_where_a_constraint_forces_them(local: LocalBackend) -> None:
    @function
    def forms(s: ProgramState) -> None:
        s += "d!" + gen("x", regex="abcab[ac]", max_tokens=8)

    state = forms.run(backend=local)
    meta = state.get_meta_info("x")
    assert meta["forced_tokens"] > 0
    assert state.usage("x").forced_tokens == meta["forced_tokens"]


def test_t62_usage_sums_over_the_state_and_its_forks() -> None:
    state = program.run(backend=ScriptedBackend(ANSWERS))
    usage = state.usage()
    # two branches of 3, a selection of 3; the scripted backend has no cache
    assert usage == Usage(
        calls=3, prompt_tokens=9, computed_tokens=9, generated_tokens=4, ttft_count=3
    )
    one = state.usage("c")
    assert one == Usage(calls=1, prompt_tokens=3, computed_tokens=3, ttft_count=1)
    both = state.usage("x")  # gathered: the calls of both forks
    both.add(one)
    assert both == usage


def test_usage_of_a_variable_that_no_call_set_is_empty() -> None:
    @function
    def sets(s: ProgramState) -> None:
        s["n"] = 3
        with s.var_scope("scope"):
            s += "text" + gen("x")

    state = sets.run(backend=ScriptedBackend())
    assert state.usage("n") == state.usage("scope") == Usage()
    with pytest.raises(KeyError):
        state.usage("unknown")


def test_what_usage_returns_is_the_callers_own() -> None:
    state = program.run(backend=ScriptedBackend(ANSWERS))
    state.usage("c").calls = 99
    state.usage().calls = 99
    assert (state.usage("c").calls, state.usage().calls) == (1, 3)


def test_times_go_from_the_first_start_to_the_last_end() -> None:
    pause_s = 0.02

    @function
    def two(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += "prompt" + gen("x")
        forks.join()

    before = time.perf_counter()
    state = two.run(backend=ScriptedBackend(latency_s=pause_s))
    usage = state.usage()
    took_s = time.perf_counter() - before
    assert pause_s <= usage.wall_s <= took_s
    assert usage.call_sum_s >= 2 * pause_s
    assert usage.ttft_s == pytest.approx(pause_s)
    assert usage.queue_s is None  # the scripted backend has no queue


def test_the_engine_tells_how_long_calls_were_queued(local: LocalBackend) -> None:
    @function
    def one(s: ProgramState) -> None:
        s += "abc" + gen("x", max_tokens=2, ignore_eos=True)

    usage = one.run(backend=local).usage("x")
    assert usage.queue_s is not None
    assert usage.ttft_s is not None
    assert 0 <= usage.queue_s <= usage.ttft_s <= usage.wall_s


def test_usage_counts_programs_that_the_body_runs() -> None:
    @function
    def outer(s: ProgramState) -> None:
        s += "four" + gen("x")
        program()
        program.run_batch([{}] * 2)

    backend = ScriptedBackend({**ANSWERS, "four": "a"})
    with record_usage() as log:
        state = outer.run(backend=backend)
        assert state.usage().calls == 1 + 3 * 3
    assert log.usage == state.usage()  # counted once
    fork_usage = state.usage("x")
    assert fork_usage.calls == 1


def test_usage_counts_async_programs_that_an_async_body_runs() -> None:
    @function
    async def inner(s: ProgramState) -> None:
        s += "four" + gen("y")

    @function
    async def outer(s: ProgramState) -> Usage:
        await asyncio.gather(inner.arun(), inner.arun_batch([{}, {}]))
        return await s.ausage()

    state = asyncio.run(outer.arun(backend=ScriptedBackend("a")))
    assert state.ret_value.calls == 3


def test_usage_of_a_batch_sums_its_states() -> None:
    backend = ScriptedBackend(ANSWERS)
    states = program.run_batch([{}] * 4, backend=backend)
    usage = espalier.usage_of(states)
    assert usage.calls == 12
    assert usage.prompt_tokens == 36
    assert max(state.usage().wall_s for state in states) <= usage.wall_s
    assert usage_of([*states, states[0]]) == usage  # each counted once
    assert usage_of([]) == Usage()


def test_usage_of_a_failed_state_counts_what_was_done() -> None:
    @function
    def failing(s: ProgramState) -> None:
        s += "a" + gen("x") + "b" + gen("y")

    state = failing.run(backend=ScriptedBackend(["ok", ValueError("boom")]))
    assert state.usage().calls == 1


def test_record_usage_counts_every_program_of_the_process() -> None:
    backend = ScriptedBackend(ANSWERS, model_name="toy")
    with record_usage() as log, record_usage() as inner:
        program.run_batch([{}] * 5, backend=backend)
    program.run(backend=backend).sync()
    assert (log.programs, log.calls) == (5, 15)
    assert log.usage.prompt_tokens == 45
    assert log.models == ["toy"]
    assert log.wall_s > 0
    assert inner.usage == log.usage


def test_an_unused_log_is_empty() -> None:
    with record_usage() as log:
        pass
    assert (log.programs, log.calls, log.wall_s) == (0, 0, 0.0)


def test_the_report_of_the_command_has_the_numbers_of_the_states() -> None:
    backend = ScriptedBackend(ANSWERS, latency_s=0.001)
    with record_usage() as log:
        states = program.run_batch([{}] * 3, backend=backend)
    usage = usage_of(states)
    report: Any = make_report(log.programs, log.usage, log.wall_s, log.models)
    for name in (
        "calls",
        "prompt_tokens",
        "cached_tokens",
        "forced_tokens",
        "computed_tokens",
        "generated_tokens",
    ):
        assert getattr(report, name) == getattr(usage, name), name
    assert report.ttft_ms == pytest.approx(1e3 * (usage.ttft_s or 0), abs=0.01)
