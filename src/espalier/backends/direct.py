"""Engine requests from threads and event loops: all of a list, or their progress as it comes.

A list may be longer than the engine's queue: at most 1,024 of its requests are submitted at once.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from concurrent.futures import Future

from espalier.backends.together import together
from espalier.engine.async_engine import AsyncEngine, RequestHandle
from espalier.engine.request import EngineRequest, RequestOutput
from espalier.errors import EspalierError

MAX_IN_FLIGHT = 1024
Progress = tuple[int, RequestOutput]  # (index of the request, its state so far)


def run_all(engine: AsyncEngine, requests: Sequence[EngineRequest]) -> list[RequestOutput]:
    """Runs requests and blocks until all have ended; an error of one cancels the others."""
    slots = threading.Semaphore(MAX_IN_FLIGHT)
    failed = threading.Event()
    handles: list[RequestHandle] = []
    results: list[Future[RequestOutput]] = []
    try:
        for request in requests:
            slots.acquire()
            if failed.is_set():
                break
            result: Future[RequestOutput] = Future()
            handles.append(engine.submit(request, _Settle(result, slots, failed)))
            results.append(result)
        return [result.result() for result in results]
    except BaseException:
        for handle in handles:
            handle.cancel()
        raise


class _Settle:
    """Passes a request's end on to a future."""

    def __init__(
        self, result: Future[RequestOutput], slots: threading.Semaphore, failed: threading.Event
    ) -> None:
        self._result = result
        self._slots = slots
        self._failed = failed

    def __call__(self, output: RequestOutput | EspalierError) -> None:
        if isinstance(output, EspalierError):
            self._failed.set()
            self._result.set_exception(output)
        else:
            self._result.set_result(output)
        self._slots.release()


async def run_all_async(
    engine: AsyncEngine, requests: Sequence[EngineRequest]
) -> list[RequestOutput]:
    """`run_all`, awaited."""
    slots = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def run(request: EngineRequest) -> RequestOutput:
        async with slots:
            return await engine.generate(request)

    return await together([run(request) for request in requests])


def stream_all(
    engine: AsyncEngine, requests: Sequence[EngineRequest]
) -> Generator[Progress, None, None]:
    """Yields the state of requests as tokens come; closing the iterator cancels them."""
    outputs: queue.SimpleQueue[tuple[int, RequestOutput | EspalierError]] = queue.SimpleQueue()
    handles = []
    num_left = len(requests)
    try:
        for index, request in enumerate(requests):
            handles.append(engine.submit(request, _Put(outputs, index), is_streamed=True))
        while num_left:
            index, output = outputs.get()
            if isinstance(output, EspalierError):
                raise output
            num_left -= output.finish_reason is not None
            yield index, output
    finally:
        if num_left:
            for handle in handles:
                handle.cancel()


class _Put:
    """Puts what becomes of a request into a queue."""

    def __init__(
        self, outputs: queue.SimpleQueue[tuple[int, RequestOutput | EspalierError]], index: int
    ) -> None:
        self._outputs = outputs
        self._index = index

    def __call__(self, output: RequestOutput | EspalierError) -> None:
        self._outputs.put((self._index, output))


async def stream_all_async(
    engine: AsyncEngine, requests: Sequence[EngineRequest]
) -> AsyncGenerator[Progress, None]:
    """`stream_all`, awaited."""
    outputs: asyncio.Queue[tuple[int, RequestOutput | EspalierError]] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    handles = []
    num_left = len(requests)
    try:
        for index, request in enumerate(requests):

            def put(output: RequestOutput | EspalierError, index: int = index) -> None:
                outputs.put_nowait((index, output))

            await engine.compile(request)
            handles.append(engine.submit(request, put, loop=loop, is_streamed=True))
        while num_left:
            index, output = await outputs.get()
            if isinstance(output, EspalierError):
                raise output
            num_left -= output.finish_reason is not None
            yield index, output
    finally:
        if num_left:
            for handle in handles:
                handle.cancel()
