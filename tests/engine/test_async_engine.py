from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from tests.engine.fakes import executor_of, make_core, naive_output, request
from tests.engine.gate import Gate, keep_pace_with

from espalier.engine.async_engine import AsyncEngine
from espalier.engine.engine import EngineCore
from espalier.engine.request import RequestOutput
from espalier.errors import (
    BackendError,
    CapacityError,
    EngineClosedError,
    EspalierError,
    PromptError,
    RequestCancelledError,
    UserInputError,
)


@pytest.fixture
def core() -> EngineCore:
    return make_core(512)


@pytest.fixture
def engine(core: EngineCore) -> Iterator[AsyncEngine]:
    engine = AsyncEngine(core)
    yield engine
    engine.shutdown()


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "espalier-engine"]


def test_generate_gives_the_naive_results_of_many_tasks(engine: AsyncEngine) -> None:
    requests = [request(f"r{i}", [1, 2, 3, i % 5], temperature=1.0, seed=i) for i in range(40)]

    async def main() -> list[RequestOutput]:
        return await asyncio.gather(*(engine.generate(asked) for asked in requests))

    for asked, got in zip(requests, asyncio.run(main()), strict=True):
        assert got.output_ids == naive_output(asked).output_ids
        assert got.e2e_s is not None
        assert got.ttft_s is not None
        assert 0 <= got.ttft_s <= got.e2e_s
    assert engine.stats().totals.requests_finished == 40


def test_stream_yields_growing_text_that_ends_with_a_reason(
    core: EngineCore, engine: AsyncEngine
) -> None:
    asked = request("r", [1, 2], max_new_tokens=30, ignore_eos=True)

    async def main() -> list[RequestOutput]:
        keep_pace_with(core, asyncio.get_running_loop())
        return [output async for output in engine.stream(asked)]

    outputs = asyncio.run(main())
    assert [len(output.output_ids) for output in outputs] == list(range(1, 31))
    assert all(b.text.startswith(a.text) for a, b in pairwise(outputs))
    assert [output.finish_reason for output in outputs[:-1]] == [None] * (len(outputs) - 1)
    assert outputs[-1].text == naive_output(asked).text
    assert outputs[-1].finish_reason is not None


def test_stream_gives_every_token_to_a_callback(engine: AsyncEngine) -> None:
    asked = request("r", [1, 2], max_new_tokens=10, ignore_eos=True)
    lengths: list[int] = []
    done = threading.Event()

    def on_output(output: RequestOutput | EspalierError) -> None:
        assert isinstance(output, RequestOutput)
        lengths.append(len(output.output_ids))
        if output.finish_reason is not None:
            done.set()

    engine.submit(asked, on_output, is_streamed=True)
    assert done.wait(10)
    assert lengths == list(range(1, 11))


def test_cancelling_the_task_ends_the_request(core: EngineCore) -> None:
    gate = Gate(core)
    engine = AsyncEngine(core)

    async def main() -> None:
        task = asyncio.create_task(
            engine.generate(request("r", [1, 2], max_new_tokens=400, ignore_eos=True))
        )
        await asyncio.to_thread(gate.entered.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.opened.set()
        while engine.stats().totals.requests_cancelled == 0:
            await asyncio.sleep(0.001)

    asyncio.run(main())
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.slots_locked) == (0, 0, 0)
    engine.shutdown()


def test_closing_a_stream_early_ends_the_request(core: EngineCore, engine: AsyncEngine) -> None:
    gate = Gate(core, num_free=2)

    async def main() -> None:
        stream = engine.stream(request("r", [1], max_new_tokens=400, ignore_eos=True))
        async for _ in stream:
            break
        await stream.aclose()
        gate.opened.set()
        while engine.stats().totals.requests_cancelled == 0:
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert engine.stats().running == 0


def test_cancel_reaches_the_callback_once(core: EngineCore) -> None:
    gate = Gate(core)
    engine = AsyncEngine(core)
    outputs: list[RequestOutput | EspalierError] = []
    handle = engine.submit(request("r", [1, 2]), outputs.append)
    assert gate.entered.wait(10)
    handle.cancel()
    handle.cancel()
    gate.opened.set()
    assert engine.flush_cache()
    handle.cancel()
    engine.shutdown()
    assert [type(output) for output in outputs] == [RequestCancelledError]


def test_submit_raises_at_once_for_a_bad_request(engine: AsyncEngine) -> None:
    with pytest.raises(PromptError, match="empty"):
        engine.submit(request("r", []), print)
    with pytest.raises(CapacityError, match="512"):
        engine.submit(request("r", [1] * 600), print)


def test_an_id_in_use_is_refused_and_the_first_request_goes_on(engine: AsyncEngine) -> None:
    async def main() -> None:
        first = asyncio.create_task(engine.generate(request("same", [1, 2, 3], ignore_eos=True)))
        await asyncio.sleep(0)
        with pytest.raises(UserInputError, match="same"):
            await engine.generate(request("same", [4]))
        assert len((await first).output_ids) == 8

    asyncio.run(main())


def test_a_full_queue_refuses_with_a_capacity_error() -> None:
    core = make_core(64, max_running_requests=1, max_waiting_requests=1)
    gate = Gate(core)
    engine = AsyncEngine(core)

    async def main() -> list[RequestOutput | BaseException]:
        tasks = [asyncio.create_task(engine.generate(request("r0", [1])))]
        await asyncio.to_thread(gate.entered.wait, 10)
        tasks += [asyncio.create_task(engine.generate(request(f"r{i}", [1]))) for i in (1, 2)]
        await asyncio.sleep(0)
        gate.opened.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(main())
    assert isinstance(results[0], RequestOutput)
    assert isinstance(results[1], RequestOutput)
    assert isinstance(results[2], CapacityError)
    engine.shutdown()


def test_shutdown_fails_pending_requests_and_leaves_no_thread(core: EngineCore) -> None:
    before = len(engine_threads())
    gate = Gate(core)
    engine = AsyncEngine(core)

    async def main() -> list[RequestOutput | BaseException]:
        tasks = [
            asyncio.create_task(engine.generate(request(f"r{i}", [i + 1], max_new_tokens=300)))
            for i in range(3)
        ]
        await asyncio.to_thread(gate.entered.wait, 10)
        closing = asyncio.create_task(asyncio.to_thread(engine.shutdown))
        while not engine._thread._is_closing:
            await asyncio.sleep(0.001)
        gate.opened.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await closing
        return results

    results = asyncio.run(main())
    assert [type(result) for result in results] == [EngineClosedError] * 3
    assert len(engine_threads()) == before
    assert executor_of(core).is_closed
    with pytest.raises(EngineClosedError, match="shut down"):
        engine.submit(request("late", [1]), print)
    with pytest.raises(EngineClosedError):
        engine.flush_cache()
    engine.shutdown()


def test_shutdown_fails_requests_that_the_thread_has_not_seen_yet(core: EngineCore) -> None:
    gate = Gate(core)
    engine = AsyncEngine(core)
    outputs: list[RequestOutput | EspalierError] = []
    engine.submit(request("seen", [1]), outputs.append)
    assert gate.entered.wait(10)
    engine.submit(request("unseen", [2]), outputs.append)
    closing = threading.Thread(target=engine.shutdown)
    closing.start()
    while not engine._thread._is_closing:
        threading.Event().wait(0.001)
    gate.opened.set()
    closing.join()
    assert [type(output) for output in outputs] == [EngineClosedError] * 2


def test_a_forgotten_engine_ends_its_thread() -> None:
    before = len(engine_threads())
    engine = AsyncEngine(make_core())
    assert len(engine_threads()) == before + 1
    del engine
    gc.collect()
    assert len(engine_threads()) == before


def test_an_executor_failure_fails_those_requests_and_the_engine_goes_on(
    core: EngineCore, engine: AsyncEngine
) -> None:
    executor_of(core).fail_at = {0}

    async def main() -> RequestOutput:
        with pytest.raises(BackendError, match="told to fail") as caught:
            await engine.generate(request("bad", [1, 2]))
        assert isinstance(caught.value.__cause__, RuntimeError)
        return await engine.generate(request("good", [1, 2]))

    assert asyncio.run(main()).output_ids == naive_output(request("good", [1, 2])).output_ids


def test_a_dying_thread_fails_everything_loudly(
    core: EngineCore, engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[object]:
        raise KeyError("a bug in the loop")

    core.step = broken  # type: ignore[method-assign, assignment]

    async def main() -> None:
        results = await asyncio.gather(
            *(engine.generate(request(f"r{i}", [1])) for i in range(2)), return_exceptions=True
        )
        assert all(isinstance(result, BackendError) for result in results)
        assert isinstance(results[0], BackendError)
        assert isinstance(results[0].__cause__, KeyError)

    asyncio.run(main())
    with pytest.raises(BackendError, match="died"):
        engine.submit(request("late", [1]), print)
    assert "died" in caplog.text


def test_a_callback_that_raises_ends_its_own_request_alone(
    engine: AsyncEngine, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise ValueError("callback")

    engine.submit(request("bad", [1], ignore_eos=True), broken, is_streamed=True)
    asked = request("good", [2, 3])
    assert asyncio.run(engine.generate(asked)).output_ids == naive_output(asked).output_ids
    assert "bad" in caplog.text


def test_a_closed_loop_ends_its_requests(core: EngineCore) -> None:
    gate = Gate(core)
    engine = AsyncEngine(core)
    loop = asyncio.new_event_loop()
    asked = request("r", [1], max_new_tokens=400, ignore_eos=True)
    engine.submit(asked, print, loop=loop, is_streamed=True)
    assert gate.entered.wait(10)
    loop.close()
    gate.opened.set()
    while engine.stats().totals.requests_cancelled == 0:
        threading.Event().wait(0.001)
    assert engine.stats().running == 0
    engine.shutdown()


def test_one_engine_serves_several_event_loops(engine: AsyncEngine) -> None:
    results: dict[int, list[int]] = {}

    def client(number: int) -> None:
        async def main() -> None:
            asked = request(f"r{number}", [number, 1], seed=number, temperature=1.0)
            results[number] = (await engine.generate(asked)).output_ids

        asyncio.run(main())

    threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(6):
        asked = request(f"r{number}", [number, 1], seed=number, temperature=1.0)
        assert results[number] == naive_output(asked).output_ids


def test_two_engines_in_one_process_do_not_mix() -> None:
    first, second = AsyncEngine(make_core()), AsyncEngine(make_core())

    async def main() -> tuple[RequestOutput, RequestOutput]:
        return await asyncio.gather(
            first.generate(request("r", [1, 2])), second.generate(request("r", [3, 4]))
        )

    one, two = asyncio.run(main())
    assert one.output_ids == naive_output(request("r", [1, 2])).output_ids
    assert two.output_ids == naive_output(request("r", [3, 4])).output_ids
    first.shutdown()
    assert asyncio.run(second.generate(request("r", [5]))).finish_reason is not None
    second.shutdown()


def in_fork(check: Callable[[], bool]) -> bool:
    """What a check gives in a forked process; false too where it takes more than 10 seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if check() else 1)
    return os.waitpid(child, 0)[1] == 0


def test_in_a_forked_process_calls_raise_and_do_not_hang(engine: AsyncEngine) -> None:
    def refuses() -> bool:
        with pytest.raises(EngineClosedError, match="fork"):
            engine.submit(request("r", [1, 2]), print)
        with pytest.raises(EngineClosedError, match="fork"):
            engine.flush_cache()
        engine.shutdown()
        return True

    with engine._thread._wakes:  # as where the fork comes while the engine takes its commands
        assert in_fork(refuses)
    assert asyncio.run(engine.generate(request("r", [1, 2]))).finish_reason is not None


def test_a_shutdown_that_is_interrupted_waits_for_the_thread_all_the_same(
    core: EngineCore,
) -> None:
    gate = Gate(core)
    engine = AsyncEngine(core)
    engine.submit(request("r", [1, 2, 3]), lambda _: None)
    assert gate.entered.wait(10)
    waits = threading.Semaphore(0)  # one for each time that the shutdown begins to wait
    wait = engine._thread._ended.wait

    def announced_wait(timeout: float | None = None) -> bool:
        waits.release()
        return wait(timeout)

    engine._thread._ended.wait = announced_wait  # type: ignore[method-assign]

    def interrupt_twice_and_open() -> None:
        for _ in range(2):
            if not waits.acquire(timeout=10):
                break
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        else:
            waits.acquire(timeout=10)
        gate.opened.set()

    opener = threading.Thread(target=interrupt_twice_and_open)
    opener.start()
    with pytest.raises(KeyboardInterrupt):
        engine.shutdown()
    opener.join()
    assert gate.opened.is_set()
    assert not engine._thread.is_alive
    assert executor_of(core).is_closed
