from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from espalier.backends.base import GenerateCall, GenerateResult, OnDelta
from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import (
    BatchError,
    GenerationError,
    ProgramError,
    RequestCancelledError,
    UserInputError,
)
from espalier.lang.api import gen
from espalier.lang.function import function
from espalier.lang.state import ProgramState


@function
async def asks(s: ProgramState, question: str = "q") -> str:
    s += question + gen("x")
    value = await s.aget("x")
    forks = s.fork(2)
    forks += lambda index: f"{index}" + gen("y")
    await forks.ajoin()
    assert await s.aget("y") == ["ok", "ok"]
    assert (await s.aget_meta_info("x"))["completion_tokens"] == 1
    async with s.copy() as twin:
        twin.__iadd__("t" + gen("z"))
    assert await s.aget("z") == ["ok"]
    await s.afinish()
    assert await s.aerror() is None
    assert await s.amessages() == []
    assert (await s.ausage()).calls == 4
    assert await s.atext() == question + "ok"
    return str(value)


def test_t05_an_async_program_runs_on_the_callers_loop() -> None:
    seen: list[Any] = []

    @function
    async def noting(s: ProgramState) -> None:
        seen.append(asyncio.get_running_loop())

    async def main() -> None:
        state = await asks.arun("why ", backend=ScriptedBackend(latency_s=0.001))
        assert state.ret_value == "ok"
        assert state["x"] == "ok"
        await noting.arun(backend=ScriptedBackend())
        assert seen == [asyncio.get_running_loop()]

    asyncio.run(main())


def test_t05_an_async_program_runs_from_sync_code() -> None:
    assert asks.run(backend=ScriptedBackend(latency_s=0.001)).ret_value == "ok"


def test_t05_a_def_program_can_be_awaited() -> None:
    @function
    def plain(s: ProgramState) -> str:
        s += "a" + gen("x")
        return str(s["x"])

    async def main() -> list[ProgramState]:
        backend = ScriptedBackend(latency_s=0.002)
        return await asyncio.gather(*(plain.arun(backend=backend) for _ in range(20)))

    assert [state.ret_value for state in asyncio.run(main())] == ["ok"] * 20


@pytest.mark.parametrize("from_async", [True, False])
def test_t05_1000_programs_at_once_need_no_1000_threads(from_async: bool) -> None:
    most_threads = 0

    @function
    async def program(s: ProgramState) -> int:
        nonlocal most_threads
        s += "a" + gen("x")
        await s.aget("x")
        most_threads = max(most_threads, threading.active_count())
        return 1

    class Holding(ScriptedBackend):
        """Answers when 1,000 calls are there."""

        async def generate(
            self, call: GenerateCall, on_delta: OnDelta | None = None
        ) -> GenerateResult:
            self.num_waiting += 1
            while self.num_waiting < 1000:
                await asyncio.sleep(0.01)
            return await super().generate(call, on_delta)

        num_waiting = 0

    backend = Holding()
    before = threading.active_count()
    if from_async:
        states = asyncio.run(program.arun_batch([{}] * 1000, backend=backend))
    else:
        states = list(program.run_batch([{}] * 1000, backend=backend))
    assert sum(state.ret_value for state in states) == 1000
    assert most_threads <= before + 1
    assert backend.num_waiting == 1000


def test_t61_blocking_reads_in_an_async_program_raise_at_once() -> None:
    @function
    async def program(s: ProgramState) -> None:
        s += "a" + gen("x")
        with pytest.raises(ProgramError, match=r"await s.aget"):
            _ = s["x"]
        with pytest.raises(ProgramError, match=r"await s.atext"):
            s.text()
        forks = s.fork(2)
        with pytest.raises(ProgramError, match=r"await group.ajoin"):
            forks.join()
        with pytest.raises(ProgramError, match=r"await f.arun"):
            program.run()
        with pytest.raises(ProgramError, match="arun_batch"):
            program.run_batch([{}])
        with pytest.raises(ProgramError, match="text_async_iter"):
            list(s.text_iter())
        await s.aget("x")
        assert s["x"] == "ok"

    backend = ScriptedBackend(latency_s=0.01)
    program.run(backend=backend)
    asyncio.run(_run(program, backend))


async def _run(program: Any, backend: ScriptedBackend) -> ProgramState:
    state: ProgramState = await program.arun(backend=backend)
    return state


def test_t61_a_script_that_reads_the_state_it_answers_for_raises_at_once() -> None:
    states: list[ProgramState] = []

    def answer(call: ScriptedCall) -> str:
        return str(states[0]["x"])

    @function
    def program(s: ProgramState) -> None:
        states.append(s)
        s += "a" + gen("x")

    with pytest.raises(GenerationError, match="stops the event loop"):
        program.run(backend=ScriptedBackend(answer)).sync()


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
    with pytest.raises(UserInputError, match="use_thread"):
        asks.run(use_thread=False, backend=ScriptedBackend())
