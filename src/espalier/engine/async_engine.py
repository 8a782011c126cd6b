"""The engine for many callers: thread-safe submission, awaiting and streaming of requests.

One thread steps the core (engine_thread.py); results reach each caller in its own event loop.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from espalier.constrain.compiler import CompilerStatistics
from espalier.engine.engine import EngineCore
from espalier.engine.engine_thread import EngineThread, Listener, OnOutput
from espalier.engine.options import EngineOptions
from espalier.engine.request import EngineRequest, RequestOutput
from espalier.engine.stats import EngineStats
from espalier.errors import EspalierError


@dataclass(frozen=True, slots=True)
class RequestHandle:
    """A submitted request."""

    request_id: str
    _thread: EngineThread
    _listener: Listener

    def cancel(self) -> None:
        """Ends the request, from any thread; its callback gets RequestCancelledError.

        Does nothing where it has ended, or where the engine is shut down.
        """
        self._thread.cancel(self._listener)


class AsyncEngine:
    """Runs an EngineCore on a thread of its own, from any number of threads and event loops.

    It owns the core from here on. Without `shutdown` the thread ends with this object, or with the
    program.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._thread = EngineThread(core)
        self._closes = weakref.finalize(self, self._thread.close)

    @property
    def options(self) -> EngineOptions:
        """Limits and policies of the engine."""
        return self._core.options

    def submit(
        self,
        request: EngineRequest,
        on_output: OnOutput,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        is_streamed: bool = False,
    ) -> RequestHandle:
        """Queues a request, from any thread, and returns at once (a new constraint is compiled
        first, by this thread).

        `on_output` gets the final RequestOutput or an EspalierError, once; a streamed request's
        gets a RequestOutput for every token before that (text and ids so far). It runs in `loop`;
        without one it runs on the engine's thread, must be quick and may not block.

        Raises PromptError, SamplingError, UnsupportedError or CapacityError for a request that
        cannot be run, EngineClosedError after `shutdown`. A full queue comes as CapacityError to
        `on_output`.
        """
        state = self._core.prepare(request, is_streamed)
        listener = Listener(request.request_id, on_output, loop)
        self._thread.submit(state, listener)
        return RequestHandle(request.request_id, self._thread, listener)

    async def generate(self, request: EngineRequest) -> RequestOutput:
        """Runs a request to its end. Cancelling the awaiting task cancels the request.

        Raises what `submit` raises, and the request's own failure.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[RequestOutput] = loop.create_future()

        def settle(output: RequestOutput | EspalierError) -> None:
            if result.done():
                return
            if isinstance(output, EspalierError):
                result.set_exception(output)
            else:
                result.set_result(output)

        await self.compile(request)
        handle = self.submit(request, settle, loop=loop)
        try:
            return await result
        except asyncio.CancelledError:
            handle.cancel()
            raise

    async def stream(self, request: EngineRequest) -> AsyncGenerator[RequestOutput, None]:
        """Yields the request's state, text and ids so far, as tokens come; the last has a reason.

        A slow reader sees the newest state, not each one. Closing the iterator, or cancelling its
        task, cancels the request. Raises as `generate` does.
        """
        latest = _Latest()
        loop = asyncio.get_running_loop()
        await self.compile(request)
        handle = self.submit(request, latest.put, loop=loop, is_streamed=True)
        is_done = False
        try:
            while not is_done:
                output = await latest.take()
                if isinstance(output, EspalierError):
                    is_done = True
                    raise output
                is_done = output.finish_reason is not None
                yield output
        finally:
            if not is_done:
                handle.cancel()

    async def compile(self, request: EngineRequest) -> None:
        """Compiles a new constraint on another thread, while the event loop goes on.

        `generate` and `stream` do so by themselves. Raises as `submit` for such a constraint.
        """
        constraint = request.constraint
        if constraint is not None and not self._core.constraints.is_ready(constraint):
            await asyncio.to_thread(self._core.constraints.prepare, constraint)

    def flush_cache(self) -> bool:
        """Empties the prefix cache of all that no request uses; true if it is empty now.

        Waits for the step that runs. Raises EngineClosedError after `shutdown`.
        """
        return self._thread.call(lambda core: core.flush_cache())

    def compiler_statistics(self) -> CompilerStatistics:
        """What constraints were compiled, and found compiled."""
        return self._core.constraints.statistics()

    def stats(self) -> EngineStats:
        """What the engine did and held at its last step."""
        return self._thread.stats

    def shutdown(self) -> None:
        """Ends the engine and waits for its thread; requests that are left get EngineClosedError.

        May be called twice, and from any thread.
        """
        self._closes()


class _Latest:
    """The newest output of a request, for one reader."""

    def __init__(self) -> None:
        self._output: RequestOutput | EspalierError | None = None
        self._has_output = asyncio.Event()

    def put(self, output: RequestOutput | EspalierError) -> None:
        self._output = output
        self._has_output.set()

    async def take(self) -> RequestOutput | EspalierError:
        await self._has_output.wait()
        self._has_output.clear()
        output, self._output = self._output, None
        assert output is not None
        return output
