"""Leaving a `with` block cancels what has not finished and keeps what has."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend
from espalier.errors import GenerationError, ProgramError, RequestCancelledError
from espalier.lang import leaving
from espalier.lang.api import gen
from espalier.lang.function import function
from espalier.lang.state import ProgramState


class SlowAfter(ScriptedBackend):
    """Answers at once, but for prompts that end in "slow": those take minutes."""

    def _draw_latency(self) -> float:
        return 600.0 if self.calls[-1].text.endswith("slow") else 0.0


@function
def two(s: ProgramState, word: str) -> None:
    s += "a" + gen("first") + word + gen("second")
    s += "end"


def test_leaving_a_state_cancels_its_calls_and_keeps_what_is_there() -> None:
    backend = SlowAfter()
    with two.run("slow", backend=backend) as state:
        assert state["first"] == "ok"
    assert backend._in_flight == 0
    assert state["first"] == "ok"
    with pytest.raises(GenerationError, match=r"gen 'second'.*cancelled.*`with` block"):
        _ = state["second"]
    with pytest.raises(RequestCancelledError, match="`with` block of its state was left"):
        state.text()


def test_leaving_a_state_that_has_finished_changes_nothing() -> None:
    with two.run("fast", backend=SlowAfter()) as state:
        state.sync()
    assert state.text() == "aokfastokend"
    with two.run("fast", backend=SlowAfter()) as state:
        assert state["second"] == "ok"
    state += "more" + gen("later")
    assert state["later"] == "ok"


def test_leaving_by_an_exception_cancels_and_lets_it_pass() -> None:
    backend = SlowAfter()
    with pytest.raises(KeyError, match="mine"):
        with two.run("slow", backend=backend):
            raise KeyError("mine")
    assert backend._in_flight == 0


def test_leaving_a_streaming_run_ends_its_body() -> None:
    backend = SlowAfter()
    ended = threading.Event()

    @function
    def program(s: ProgramState) -> None:
        try:
            s += "a" + gen("first") + "slow" + gen("second")
            _ = s["second"]
        finally:
            ended.set()

    with program.run(backend=backend, stream=True) as state:
        assert next(iter(state.text_iter("first"))) == "ok"
    assert ended.is_set()
    assert backend._in_flight == 0
    with pytest.raises(RequestCancelledError):
        list(state.text_iter())


def test_leaving_a_streaming_async_run_ends_its_body_wherever_it_waits() -> None:
    @function
    async def program(s: ProgramState) -> None:
        s += "a" + gen("first")
        await s.aget("first")
        await asyncio.Event().wait()

    with program.run(backend=SlowAfter(), stream=True) as state:
        assert state["first"] == "ok"
    assert isinstance(state.error(), RequestCancelledError)


def test_a_body_that_sleeps_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaving, "MAX_WAIT_S", 0.05)
    wakes = threading.Event()

    @function
    def program(s: ProgramState) -> None:
        s += "a"
        assert wakes.wait(60)
        s += "b"

    with program.run(backend=ScriptedBackend(), stream=True) as state:
        pass
    assert not state.stream.program.body_ended.done
    wakes.set()
    assert isinstance(state.error(), RequestCancelledError)


def test_leaving_a_program_cancels_its_forks_and_the_programs_inside() -> None:
    inner: list[ProgramState] = []
    forks: list[ProgramState] = []

    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x")
        forks.extend(s.fork(2))
        for fork, word in zip(forks, ("slow", "fast"), strict=True):
            fork.__iadd__(word + gen("y"))
        inner.append(two.run("slow"))

    backend = SlowAfter()
    with program.run(backend=backend) as state:
        assert [state["x"], forks[1]["y"], inner[0]["first"]] == ["ok", "ok", "ok"]
    assert backend._in_flight == 0
    assert state.text() == "aok"
    assert forks[1].text() == "aokfastok"
    for cancelled in (forks[0], inner[0]):
        with pytest.raises(RequestCancelledError):
            cancelled.text()


@pytest.mark.parametrize("by_exception", [False, True])
def test_leaving_a_group_cancels_the_forks_that_have_not_ended(by_exception: bool) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a"
        try:
            with s.fork(3) as group:
                group += ["slow", "fast", "slow"]
                group += gen("x")  # noqa: PLW2901
                nested = group[0].fork(2)
                nested += gen("y")
                assert group[1]["x"] == "ok"
                if by_exception:
                    raise KeyError("mine")
        except KeyError:
            assert by_exception
        assert backend._in_flight == 0
        assert group[1].text() == "afastok"
        for fork in (group[0], group[2], *nested):
            with pytest.raises(RequestCancelledError, match="`with` block of its group"):
                fork.text()
        s += "b" + gen("mine")

    backend = SlowAfter()
    assert program.run(backend=backend)["mine"] == "ok"


def test_a_group_that_is_joined_in_its_block_is_as_without_one() -> None:
    @function
    def program(s: ProgramState) -> None:
        with s.fork(2) as group:
            group += "a" + gen("x")  # noqa: PLW2901
            group.join("concat_text")
        with s.fork(2) as group:
            group += "b"  # noqa: PLW2901 - text alone is no work
        assert group[1].text() == "aokaokb"

    state = program.run(backend=ScriptedBackend())
    assert state["x"] == ["ok", "ok"]
    assert state.text() == "aokaok"


def test_blocks_of_async_programs() -> None:
    backend = SlowAfter()

    @function
    async def program(s: ProgramState) -> None:
        async with s.fork(2) as group:
            group += ["slow", "fast"]
            group += gen("x")  # noqa: PLW2901
            assert await group[1].aget("x") == "ok"
        assert backend._in_flight == 0
        with s.fork(1) as other:  # waits for nothing: it would stop this loop
            other += "slow" + gen("y")  # noqa: PLW2901
        with pytest.raises(RequestCancelledError):
            await other[0].afinish()
        s += "slow" + gen("never")

    async def main() -> None:
        async with await program.arun(backend=backend, stream=True) as state:
            while "never" not in state:
                await asyncio.sleep(0.002)
        assert backend._in_flight == 0
        with pytest.raises(RequestCancelledError):
            await state.afinish()

    asyncio.run(main())


def test_a_state_may_be_left_inside_its_own_program() -> None:
    @function
    def program(s: ProgramState) -> None:
        with s:
            s += "a" + gen("x")
            assert s["x"] == "ok"
        raise AssertionError("the program has been cancelled before")

    start = time.monotonic()
    with pytest.raises((AssertionError, ProgramError)):
        program.run(backend=ScriptedBackend())
    assert time.monotonic() - start < leaving.MAX_WAIT_S


def read_in(kind: str) -> Callable[[ProgramState], Any]:
    return {
        "variable": lambda state: state["second"],
        "text": lambda state: state.text(),
        "pieces": lambda state: list(state.text_iter()),
        "piece": lambda state: list(state.text_iter("second")),
    }[kind]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["variable", "text", "pieces", "piece"])
def test_leaving_wakes_whoever_waits_in_another_thread(kind: str, stream: bool) -> None:
    found: list[BaseException] = []

    def read(state: ProgramState) -> None:
        try:
            read_in(kind)(state)
        except Exception as error:
            found.append(error)

    with two.run("slow", backend=SlowAfter(), stream=stream) as state:
        assert state["first"] == "ok"
        thread = threading.Thread(target=read, args=(state,))
        thread.start()
    thread.join(20)
    assert len(found) == 1
    assert "`with` block" in str(found[0])
