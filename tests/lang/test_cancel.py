"""Whatever ends a run early ends its calls, also where the body has returned before them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from espalier.backends.base import GenerateCall, GenerateResult, OnDelta
from espalier.backends.scripted import ScriptedBackend
from espalier.lang import loop
from espalier.lang.api import gen
from espalier.lang.function import SglFunction, function
from espalier.lang.interpreter import launch, run_body
from espalier.lang.options import RunOptions
from espalier.lang.state import ProgramState


class EndlessBackend(ScriptedBackend):
    """Never answers a prompt that ends in "endless"; counts the calls that wait."""

    def __init__(self) -> None:
        super().__init__("ok")
        self.num_waiting = 0

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        if not call.prompt[-1].text.endswith("endless"):
            return await super().generate(call, on_delta)
        self.num_waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.num_waiting -= 1
        raise AssertionError("the call has ended")

    def comes_to(self, count: int) -> bool:
        """True once so many calls wait; false after 5 seconds."""
        deadline = time.monotonic() + 5.0
        while self.num_waiting != count and time.monotonic() < deadline:
            time.sleep(0.002)
        return self.num_waiting == count


@function
def returns_at_once(s: ProgramState, word: str) -> None:
    s += word + gen("x")
    s.fork(2).__iadd__(word + gen("y"))


@function
async def returns_at_once_async(s: ProgramState, word: str) -> None:
    s += word + gen("x")
    s.fork(2).__iadd__(word + gen("y"))


PROGRAMS = [returns_at_once, returns_at_once_async]
ITEMS = [{"word": "short"}] + [{"word": "endless"}] * 3


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_generator_that_is_left_ends_its_calls(program: SglFunction) -> None:
    backend = EndlessBackend()
    results = program.run_batch(ITEMS, backend=backend, generator_style=True)
    assert next(results)["x"] == "ok"
    assert backend.comes_to(3)
    results.close()
    assert backend.comes_to(0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupted_batch_ends_its_calls(program: SglFunction) -> None:
    backend = EndlessBackend()

    def interrupt(index: int, state: ProgramState) -> None:
        assert backend.comes_to(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.run_batch(ITEMS, backend=backend, on_result=interrupt)
    assert backend.comes_to(0)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("many", [False, True])
def test_a_cancelled_task_ends_its_calls(program: SglFunction, many: bool) -> None:
    backend = EndlessBackend()

    async def main() -> None:
        running: Coroutine[Any, Any, object] = (
            program.arun_batch(ITEMS, backend=backend)
            if many
            else program.arun("endless", backend=backend)
        )
        task = asyncio.ensure_future(running)
        assert await asyncio.to_thread(backend.comes_to, 3 if many else 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(backend.comes_to, 0)

    asyncio.run(main())


def in_another_thread(function: Callable[[], None]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(5.0)


def test_a_program_is_not_idle_before_the_loop_came_to_what_its_body_sent() -> None:
    async def on_the_loop() -> bool:
        backend = ScriptedBackend("ok")
        options = RunOptions(backend=backend)
        start = launch(returns_at_once.func, ("short",), {}, options)
        in_another_thread(lambda: run_body(start))  # the loop waits for it, so nothing has begun
        await start.program.when_idle().wait_async()
        return start.state.stream.is_settled()

    assert loop.run_blocking(on_the_loop())
