"""Runs programs: makes a state, runs the body on it, and cleans up when the body fails.

From here on down the order is: state -> submission -> ops and calls -> stream -> program.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from espalier.backends.base import derive_seed
from espalier.errors import UserInputError
from espalier.lang import loop
from espalier.lang.config import chosen_backend, global_config
from espalier.lang.executor import StreamExecutor
from espalier.lang.failure import Failure
from espalier.lang.ops import EndOp
from espalier.lang.options import RunOptions
from espalier.lang.program import (
    Program,
    async_body_thread,
    current_program,
    next_run_key,
    refuse_blocking,
)
from espalier.lang.recording import start_run
from espalier.lang.state import ProgramState
from espalier.lang.stream import Stream
from espalier.lang.workers import in_worker, run_in_thread, shared_crew

__all__ = ["Launch", "ProgramState", "Stream", "StreamExecutor", "launch", "run", "run_async"]


@dataclass(frozen=True, slots=True)
class Launch:
    """A program that is about to run: its state, and its body with the arguments in place."""

    state: ProgramState
    body: Callable[[], Any]
    is_async: bool

    @property
    def program(self) -> Program:
        """The run."""
        return self.state.stream.program


def launch(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: RunOptions,
    key: int | None = None,
) -> Launch:
    """Prepares a run; `key` tells it from other runs (None: the next one of its backend)."""
    outer = current_program.get()
    if options.backend is None and outer is not None:
        backend = outer.backend
    else:
        backend = chosen_backend(options.backend)
    is_async = inspect.iscoroutinefunction(function)
    if is_async and not options.use_thread:
        raise UserInputError("use_thread=False is for def programs; an async program needs none.")
    if options.seed is not None:
        key = derive_seed(options.seed, 0 if key is None else key)
    name = getattr(function, "__name__", "program")
    recorder = start_run(
        name,
        args,
        kwargs,
        backend.model_name,
        outer=None if outer is None else outer.recorder,
        is_wanted=options.trace,
    )
    key = next_run_key(backend) if key is None else key
    program = Program(backend, options, key, recorder, name)
    if outer is not None:
        outer.node.adopt(program.node)
        program.read_names = outer.read_names
        outer.add_inner(program)
    if options.timeout_s is not None:
        program.limit_time(options.timeout_s)
    root = Stream(program, program.key, program.node)
    root.record = None if recorder is None else recorder.root
    state = ProgramState(root)
    return Launch(state, lambda: function(state, *args, **kwargs), is_async)


def run(start: Launch) -> ProgramState:
    """Runs a body and returns when it has returned, or at once where the program streams."""
    if start.program.options.stream:
        return _run_streaming(start)
    with _told(start):
        if start.is_async:
            refuse_blocking("running an async program", "await f.arun(...)")
            loop.run_blocking(run_body_async(start))
        else:
            run_body(start)
    return start.state


async def run_async(start: Launch) -> ProgramState:
    """Runs a program to its end; a streaming one is returned at once.

    An `async def` body runs on the caller's loop, a `def` body on a thread.
    """
    if start.program.options.stream:
        return _run_streaming(start)
    try:
        with _told(start):
            if start.is_async:
                await run_body_async(start)
            else:
                await _body_on_thread(start)
        await start.program.when_idle().wait_async()
    except asyncio.CancelledError as error:
        start.program.abort(Failure.of_body(error))
        raise
    return start.state


@contextmanager
def _told(start: Launch) -> Iterator[None]:
    """Around a body whose error reaches the user here and now."""
    try:
        yield
    except Exception:
        if start.program.failure is not None:
            start.program.failure.mark_read()
        raise


def _run_streaming(start: Launch) -> ProgramState:
    if start.is_async:
        loop.spawn(_quiet(run_body_async(start)))
    else:
        run_in_thread(lambda: _body_quietly(start))
    return ProgramState(start.state.stream, is_outside=True)


async def _quiet(body: Any) -> None:
    try:
        await body
    except Exception:
        return  # the state holds it, and every reader of the state raises it


def _body_quietly(start: Launch) -> None:
    try:
        run_body(start)
    except Exception:
        return  # as above


@contextmanager
def running(start: Launch, *, is_async: bool) -> Iterator[None]:
    """What surrounds each body: the current program, and the end of it, however it ends."""
    tokens: list[tuple[contextvars.ContextVar[Any], contextvars.Token[Any]]] = [
        (current_program, current_program.set(start.program))
    ]
    if is_async:
        tokens.append((async_body_thread, async_body_thread.set(threading.get_ident())))
    try:
        _tell(start.program, "begin_program")
        yield
    except BaseException as error:
        if start.program.recorder is not None:
            start.program.recorder.failed(error)
        # What an aborted program's body raises follows from what aborted it.
        failure = start.program.failure or Failure.of_body(error)
        before = start.state.stream.failure
        if before is not None and before is not failure:
            before.leads_to(failure)
        start.program.abort(failure)
        raise
    finally:
        for variable, token in reversed(tokens):
            variable.reset(token)
        end_body(start)
        _tell(start.program, "end_program")


def _tell(program: Program, event: str) -> None:
    """Tells a backend that wants to know that the body begins or has ended."""
    hook = getattr(program.backend, event, None)
    if hook is not None:
        hook(program.state_id)


def end_body(start: Launch) -> None:
    """Says that nothing more will be submitted: streams of text end, reads of unknown names too."""
    start.program.end_body()
    for stream in start.program.streams():
        assert isinstance(stream, Stream)
        stream.enqueue([EndOp()])
        stream.variables.no_more()


def run_body(start: Launch) -> None:
    """Runs a `def` body in this thread."""
    with running(start, is_async=False):
        start.program.ret_value = start.body()
        _print_verbose(start)


async def run_body_async(start: Launch) -> None:
    """Runs an `async def` body on this loop."""
    with running(start, is_async=True):
        # Only a body in a task of its own can be ended while it waits for something else.
        ends_early = start.program.options.stream or start.program.is_limited
        body = _in_own_task(start) if ends_early else start.body()
        start.program.ret_value = await body
    if global_config.verbosity >= 2:
        print(await start.state.atext())


async def _in_own_task(start: Launch) -> Any:
    program = start.program
    this_loop = asyncio.get_running_loop()
    task = this_loop.create_task(start.body())

    def stop_body() -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop has been closed
            this_loop.call_soon_threadsafe(task.cancel)

    program.when_aborted(stop_body)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise
    if task.cancelled() and program.failure is not None:
        raise program.failure.raised()
    return task.result()


def _print_verbose(start: Launch) -> None:
    if global_config.verbosity >= 2:
        print(start.state.text())


async def _body_on_thread(start: Launch) -> None:
    crew = shared_crew()
    if in_worker() and crew.is_full():
        run_body(start)  # a worker that waited for a free worker might wait for itself
        return
    await crew.run(lambda: run_body(start)).wait_async()
