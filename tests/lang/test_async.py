from __future__ import annotations

import asyncio
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import (
    BatchError,
    GenerationError,
    RequestCancelledError,
    UserInputError,
)
from espalier.lang.api import gen
from espalier.lang.function import function
from espalier.lang.state import ProgramState


async def _run(program: Any, backend: ScriptedBackend) -> ProgramState:
    state: ProgramState = await program.arun(backend=backend)
    return state


def test_errors_of_async_programs_are_raised_and_chained() -> None:
    @function
    async def program(s: ProgramState) -> None:
        s += "a" + gen("x")
        await s.aget("x")

    backend = ScriptedBackend(ValueError("boom"))
    with pytest.raises(GenerationError, match="boom"):
        program.run(backend=backend)
    with pytest.raises(GenerationError, match="boom"):
        asyncio.run(_run(program, backend))


def test_cancelling_the_awaiting_task_cancels_the_program() -> None:
    @function
    def plain(s: ProgramState) -> None:
        states.append(s)
        s += "a" + gen("x")
        _ = s["x"]

    @function
    async def waiting(s: ProgramState) -> None:
        states.append(s)
        s += "a" + gen("x")
        await s.aget("x")

    states: list[ProgramState] = []
    backend = ScriptedBackend(latency_s=60)

    async def main(program: Any) -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(program.arun(backend=backend), 0.05)
        with pytest.raises(RequestCancelledError, match="interrupted by CancelledError"):
            await states[-1].afinish()

    asyncio.run(main(waiting))
    asyncio.run(main(plain))
    assert backend._in_flight == 0


def test_a_batch_of_async_programs_keeps_order_and_policy() -> None:
    @function
    async def program(s: ProgramState, number: int) -> int:
        s += f"{number}" + gen("x")
        await s.aget("x")
        return number

    def answer(call: ScriptedCall) -> str | BaseException:
        return ValueError("boom") if call.text == "3" else "ok"

    items = [{"number": number} for number in range(6)]

    async def main() -> list[ProgramState]:
        backend = ScriptedBackend(answer, latency_s=(0, 0.01))
        with pytest.raises(BatchError, match="item 3"):
            await program.arun_batch(items, backend=backend)
        told: list[int] = []
        states = await program.arun_batch(
            items,
            backend=backend,
            on_error="return",
            num_threads=2,
            on_result=lambda index, state: told.append(index),
        )
        assert sorted(told) == list(range(6))
        assert await program.arun_batch([]) == []
        return states

    states = asyncio.run(main())
    assert [state.ret_value for state in states] == [0, 1, 2, None, 4, 5]


def test_a_batch_of_def_programs_can_be_awaited_and_cancelled() -> None:
    @function
    def plain(s: ProgramState, number: int) -> int:
        s += f"{number}" + gen("x")
        _ = s["x"]
        return number

    items = [{"number": number} for number in range(50)]

    async def main() -> list[ProgramState]:
        slow = ScriptedBackend(latency_s=60)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(plain.arun_batch(items, backend=slow, num_threads=4), 0.05)
        return await plain.arun_batch(items, backend=ScriptedBackend(), num_threads=4)

    assert [state.ret_value for state in asyncio.run(main())] == list(range(50))


def test_an_async_program_can_stream() -> None:
    @function
    async def program(s: ProgramState) -> None:
        s += "a" + gen("x")
        await s.aget("x")
        s += "b"

    state = program.run(stream=True, backend=ScriptedBackend("c d", latency_s=0.01))
    assert "".join(state.text_iter()) == "ac db"
    state = program.run(stream=True, backend=ScriptedBackend(ValueError("boom")))
    with pytest.raises(GenerationError, match="boom"):
        list(state.text_iter())


def test_use_thread_false_is_refused_for_async_programs() -> None:
    @function
    async def program(s: ProgramState) -> None:
        s += "a"

    with pytest.raises(UserInputError, match="use_thread"):
        program.run(use_thread=False, backend=ScriptedBackend())
