"""Timeouts of calls, programs and batches: what they end, what they say, what they leave alone."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend
from espalier.errors import (
    BatchError,
    EspalierError,
    GenerationError,
    GenerationTimeoutError,
    ProgramTimeoutError,
    UserInputError,
)
from espalier.lang.api import gen, gen_int, gen_string, select
from espalier.lang.function import SglFunction, function
from espalier.lang.state import ProgramState

SHORT_S = 0.05


class SlowAfter(ScriptedBackend):
    """Answers at once, but for prompts that end in "slow": those take minutes."""

    def _draw_latency(self) -> float:
        return 600.0 if self.calls[-1].text.endswith("slow") else 0.0


def waits_for_nothing(backend: ScriptedBackend) -> bool:
    deadline = time.monotonic() + 5
    while backend._in_flight and time.monotonic() < deadline:
        time.sleep(0.002)
    return backend._in_flight == 0


# Calls.


@pytest.mark.parametrize(
    ("call", "described"),
    [
        (lambda: gen("x", timeout=SHORT_S), "gen 'x'"),
        (lambda: gen_int("x", timeout=SHORT_S), "gen 'x'"),
        (lambda: gen_string("x", timeout=SHORT_S), "gen 'x'"),
        (lambda: select("x", ["ok", "no"], timeout=SHORT_S), "select 'x'"),
        (lambda: gen("x", choices=["ok", "no"], timeout=SHORT_S), "select 'x'"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_takes_longer_than_its_timeout_fails(
    call: Any, described: str, stream: bool
) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "fast" + gen("before")
        s += "slow" + call()
        s += "then" + gen("after")

    backend = SlowAfter()
    state = program.run(backend=backend, stream=stream)
    with pytest.raises(GenerationTimeoutError) as caught:
        _ = state["x"]
    error = caught.value
    place = rf"{re.escape(__file__)}:\d+"
    assert re.search(rf"{described} at {place} failed.*timeout of 0.05 s", str(error))
    assert isinstance(error, (TimeoutError, EspalierError))
    assert isinstance(error, GenerationError)
    assert isinstance(error.__cause__, ProgramTimeoutError)
    assert error.variable == "x"
    assert re.fullmatch(place, error.location or "")
    assert state["before"] == "ok"
    with pytest.raises(TimeoutError, match=r"gen 'after'.*was cancelled"):
        _ = state["after"]
    for read in (state.text, state.sync, lambda: list(state.text_iter())):
        with pytest.raises(GenerationTimeoutError, match=r"timeout of 0\.05 s"):
            read()
    assert waits_for_nothing(backend)


def test_a_call_in_time_is_as_without_a_timeout() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x", timeout=60) + select("y", ["ok"], timeout=60)

    assert program.run(backend=ScriptedBackend(), timeout=60).text() == "aokok"


def test_a_timeout_counts_from_the_turn_of_its_call() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x") + gen("y") + gen("z", timeout=0.4)

    assert program.run(backend=ScriptedBackend(latency_s=0.2)).text() == "aokokok"


def test_the_timeout_of_a_fork_leaves_its_siblings_alone() -> None:
    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(3)
        forks += ["a", "slow", "b"]
        forks += gen("x", timeout=0.2)
        with pytest.raises(TimeoutError, match="gen 'x'"):
            forks.join()
        assert [forks[0]["x"], forks[2]["x"]] == ["ok", "ok"]
        s += "c" + gen("mine")

    assert program.run(backend=SlowAfter())["mine"] == "ok"


WRONG = [0, -1, float("nan"), "5", True, [1]]


@pytest.mark.parametrize("timeout", WRONG)
def test_a_wrong_timeout_raises_where_it_is_given(timeout: Any) -> None:
    program = calls("fast")
    for wrong in (
        lambda: gen("x", timeout=timeout),
        lambda: select("x", ["a"], timeout=timeout),
        lambda: program.run(timeout=timeout),
        lambda: program.run_batch([{}], timeout=timeout),
        lambda: program.run_batch([{}], item_timeout=timeout),
    ):
        with pytest.raises(UserInputError, match=r"timeout is .*seconds above 0"):
            wrong()


def test_no_timeout_and_one_of_centuries_are_allowed() -> None:
    for timeout in (None, float("inf"), 10**30, 5):
        assert calls("fast").run(backend=ScriptedBackend(), timeout=timeout)["x"] == "ok"


# Programs.


def calls(word: str) -> SglFunction:
    @function
    def program(s: ProgramState) -> None:
        s += "first" + gen("before")
        s += word + gen("x")

    return program


def test_a_program_that_takes_too_long_is_cancelled_and_its_readers_raise() -> None:
    backend = SlowAfter()
    state = calls("slow").run(backend=backend, timeout=0.2)  # the body has returned
    assert state["before"] == "ok"
    with pytest.raises(GenerationTimeoutError) as caught:
        _ = state["x"]
    assert re.search(
        r"gen 'x' at .*was cancelled.*program 'program' did not end within its timeout of 0.2 s; "
        rf"at work: gen 'x' at {re.escape(__file__)}:\d+",
        str(caught.value),
    )
    with pytest.raises(ProgramTimeoutError, match="program 'program' did not end"):
        state.text()
    assert isinstance(state.error(), TimeoutError)
    assert waits_for_nothing(backend)


def test_a_body_that_reads_is_ended_by_the_error() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "slow" + gen("x")
        _ = s["x"]

    backend = SlowAfter()
    with pytest.raises(TimeoutError, match="program 'program' did not end"):
        program.run(backend=backend, timeout=SHORT_S)
    assert waits_for_nothing(backend)


def test_a_body_that_only_appends_is_ended_by_its_next_append() -> None:
    @function
    def program(s: ProgramState) -> None:
        with s.user():
            while True:
                s += "a"
                time.sleep(0.001)

    with pytest.raises(ProgramTimeoutError, match="program 'program'"):
        program.run(backend=ScriptedBackend(), timeout=SHORT_S)


@pytest.mark.parametrize("stream", [False, True])
def test_a_timeout_ends_forks_and_programs_inside(stream: bool) -> None:
    inner_states = []

    @function
    def inner(s: ProgramState) -> None:
        s += "slow" + gen("y")
        inner_states.append(s)

    @function
    def program(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(8)
        forks += "slow" + gen("x")
        inner()
        forks.join()

    backend = SlowAfter()
    if stream:
        state = program.run(backend=backend, timeout=SHORT_S, stream=True)
        assert isinstance(state.error(), TimeoutError)
    else:
        with pytest.raises(TimeoutError, match=r"at work: .* and \d+ more"):
            program.run(backend=backend, timeout=SHORT_S)
    with pytest.raises(TimeoutError, match="program 'program'"):
        inner_states[0].text()
    assert waits_for_nothing(backend)


def test_a_program_that_ends_in_time_is_left_alone_afterwards() -> None:
    state = calls("fast").run(backend=ScriptedBackend(), timeout=SHORT_S)
    state.sync()
    time.sleep(2 * SHORT_S)
    state += "more" + gen("later")
    assert state["later"] == "ok"


@function
async def waits_for_ever(s: ProgramState) -> None:
    s += "a" + gen("x")
    await s.aget("x")
    await asyncio.Event().wait()


@function
async def waits_for_a_call(s: ProgramState) -> None:
    s += "slow" + gen("x")
    await s.aget("x")


@pytest.mark.parametrize("program", [waits_for_ever, waits_for_a_call])
def test_an_async_body_is_ended_wherever_it_waits(program: SglFunction) -> None:
    backend = SlowAfter()

    async def main() -> None:
        with pytest.raises(TimeoutError, match="did not end within its timeout"):
            await program.arun(backend=backend, timeout=SHORT_S)
        await asyncio.sleep(0)  # the caller's own task was not cancelled

    asyncio.run(main())
    with pytest.raises(TimeoutError, match="did not end within its timeout"):
        program.run(backend=backend, timeout=SHORT_S)
    state = program.run(backend=backend, timeout=SHORT_S, stream=True)
    assert isinstance(state.error(), TimeoutError)
    assert waits_for_nothing(backend)


def test_a_parameter_of_the_program_that_is_named_timeout_is_the_programs() -> None:
    @function
    def program(s: ProgramState, timeout: str) -> None:
        s += timeout

    assert program.run(timeout="noon", backend=ScriptedBackend()).text() == "noon"


# Reads.


def test_a_read_that_times_out_leaves_the_call_alone() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x")

    state = program.run(backend=ScriptedBackend(latency_s=0.3))
    with pytest.raises(ProgramTimeoutError, match=r"'x' is not set after 0\.01 s"):
        state.get_var("x", timeout=0.01)
    assert state.get_var("x", timeout=60) == "ok"


def test_a_timeout_error_of_the_body_is_not_taken_for_that_of_the_read() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x")
        raise TimeoutError("of the body")

    state = program.run(backend=ScriptedBackend(latency_s=60), stream=True)
    with pytest.raises(GenerationError, match="of the body"):
        state.get_var("x", timeout=60)


# Batches.


@function
def one(s: ProgramState, word: str) -> str:
    s += word + gen("x")
    return str(s["x"])


@function
async def one_async(s: ProgramState, word: str) -> str:
    s += word + gen("x")
    return str(await s.aget("x"))


ITEMS = [{"word": word} for word in ("a", "slow", "b", "slow", "c", "d")]


@pytest.mark.parametrize("program", [one, one_async])
@pytest.mark.parametrize("style", ["list", "generator", "awaited"])
def test_the_timeout_of_a_batch_ends_the_items_that_have_not(
    program: SglFunction, style: str
) -> None:
    backend = SlowAfter()
    options: dict[str, Any] = {
        "backend": backend, "num_threads": 2, "timeout": 0.3, "on_error": "return"
    }  # fmt: skip
    if style == "generator":
        states = list(program.run_batch(ITEMS, generator_style=True, **options))
    elif style == "awaited":
        states = asyncio.run(program.arun_batch(ITEMS, **options))
    else:
        states = list(program.run_batch(ITEMS, **options))
    assert [states[0].ret_value, states[2].ret_value] == ["ok", "ok"]
    for state in (states[1], states[3]):
        with pytest.raises(TimeoutError, match=r"the batch did not end.*at work: gen 'x' at"):
            state.text()
    for state in states[4:]:
        with pytest.raises(TimeoutError, match=r"the batch did not end.*it had not begun"):
            state.sync()
    assert waits_for_nothing(backend)


@pytest.mark.parametrize("program", [one, one_async])
def test_the_timeout_of_a_batch_is_raised_with_the_item(program: SglFunction) -> None:
    with pytest.raises(BatchError, match=r"item 1 of the batch.*4 of 6 items failed") as caught:
        program.run_batch(ITEMS, backend=SlowAfter(), num_threads=2, timeout=0.3)
    assert isinstance(caught.value.__cause__, TimeoutError)


@pytest.mark.parametrize("program", [one, one_async])
def test_the_timeout_of_an_item_ends_that_item(program: SglFunction) -> None:
    states = program.run_batch(
        ITEMS, backend=SlowAfter(), num_threads=2, item_timeout=0.2, on_error="return"
    )
    kinds = [type(state.error()) for state in states]
    slow = {GenerationTimeoutError, ProgramTimeoutError}
    assert [kind in slow for kind in kinds] == [item["word"] == "slow" for item in ITEMS]


def test_a_batch_does_not_wait_for_a_body_that_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("espalier.lang.batch._GRACE_S", 0.05)
    monkeypatch.setattr("espalier.lang.batch._CLOSE_TIMEOUT_S", 0.05)
    wakes = threading.Event()

    @function
    def program(s: ProgramState) -> None:
        assert wakes.wait(60)

    try:
        (state,) = program.run_batch(
            [{}], backend=ScriptedBackend(), timeout=SHORT_S, on_error="return"
        )
        assert not wakes.is_set()
        assert isinstance(state.error(), ProgramTimeoutError)
    finally:
        wakes.set()


def test_the_timeout_holds_where_no_thread_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from espalier.lang import workers

    monkeypatch.setattr(workers, "_budget", workers._Budget(0))
    states = one.run_batch(ITEMS, backend=SlowAfter(), timeout=0.2, on_error="return")
    kinds = [type(state.error()).__name__ for state in states]
    assert kinds[0] == "NoneType"
    assert {"ProgramTimeoutError"} == set(kinds[2:])
    assert isinstance(states[1].error(), TimeoutError)
