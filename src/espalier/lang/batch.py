"""Many runs of one program: bounded in number, in order, with a policy for errors."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from espalier.backends.base import derive_seed
from espalier.errors import BatchError, CapacityError, UserInputError
from espalier.lang import loop
from espalier.lang.config import chosen_backend
from espalier.lang.failure import Failure
from espalier.lang.interpreter import Launch, launch, run_body, run_body_async
from espalier.lang.options import RunOptions
from espalier.lang.program import current_program, next_run_key, refuse_blocking
from espalier.lang.promise import Promise
from espalier.lang.state import ProgramState
from espalier.lang.workers import MAX_THREADS, Crew, auto_num_threads

GENERATOR_WINDOW = 200  # items that generator_style may be ahead of its reader, as in the reference
ASYNC_AUTO = 1024  # async programs at once where num_threads is "auto"
_CLOSE_TIMEOUT_S = 5.0

OnResult = Callable[[int, ProgramState], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one item ended; `error` is also what the state raises."""

    index: int
    state: ProgramState
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class BatchJob:
    """What is to be run: a body, the arguments of each item, and how.

    Raises UserInputError when made with a policy that does not exist.
    """

    function: Callable[..., Any]
    items: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]
    options: RunOptions
    is_async: bool
    num_threads: int | str = "auto"
    on_error: str = "raise"
    on_result: OnResult | None = None
    progress_bar: bool = False
    start_order: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "return"):
            raise UserInputError(f"on_error is {self.on_error!r}; 'raise' or 'return' is allowed.")
        number = self.num_threads
        if number != "auto" and (
            not isinstance(number, int) or isinstance(number, bool) or number < 1
        ):
            raise UserInputError(f"num_threads is {number!r}; 'auto' or 1 and more is allowed.")
        order = self.start_order
        if order is not None and sorted(order) != list(range(len(self.items))):
            raise UserInputError(
                f"start_order has {len(order)} numbers; each of the {len(self.items)} items once, "
                "by its number from 0, is allowed."
            )
        if self.options.stream:
            raise UserInputError("stream=True is for single runs; leave it out of a batch.")

    @property
    def limit(self) -> int:
        """Most items at work at once."""
        if isinstance(self.num_threads, int):
            number = self.num_threads
        else:
            number = ASYNC_AUTO if self.is_async else auto_num_threads()
        return max(1, min(number, len(self.items), ASYNC_AUTO if self.is_async else MAX_THREADS))

    def with_keys(self) -> tuple[BatchJob, Callable[[int], int]]:
        """The job with its backend chosen, and the key of each item, whatever order they run in."""
        outer = current_program.get()
        options = self.options
        if options.backend is None and outer is not None:
            backend = outer.backend
        else:
            backend = chosen_backend(options.backend)
        job = replace(self, options=replace(options, backend=backend))
        if options.seed is not None:
            return job, lambda index: index + 1
        key = next_run_key(backend)
        return job, lambda index: derive_seed(key, index)


class Batch:
    """The items at work; lives on one loop, the program's or the caller's."""

    def __init__(self, job: BatchJob, key_of: Callable[[int], int], window: int, crew: Crew | None):
        self._job = job
        self._key_of = key_of
        self._window = window
        self._crew = crew
        self._limit = job.limit if crew is None else min(job.limit, crew.size)
        self._next = self._num_running = self._num_taken = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._bodies: set[Promise[None]] = set()
        self._outcomes: asyncio.Queue[Outcome] | None = None
        self._closed = False

    async def next_done(self) -> list[Outcome]:
        """The items that have ended since, at least one, in no particular order."""
        if self._outcomes is None:
            self._outcomes = asyncio.Queue()
            self._pump()
        found = [await self._outcomes.get()]
        while not self._outcomes.empty():
            found.append(self._outcomes.get_nowait())
        return found

    def allow(self, num_taken: int) -> None:
        """Says how many items the reader has taken, which moves the window."""
        self._num_taken = num_taken
        self._pump()

    def _pump(self) -> None:
        end = min(len(self._job.items), self._num_taken + self._window)
        while self._num_running < self._limit and self._next < end and not self._closed:
            order = self._job.start_order
            index = self._next if order is None else order[self._next]
            task = asyncio.get_running_loop().create_task(self._run_one(index))
            self._next += 1
            self._num_running += 1
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run_one(self, index: int) -> None:
        job = self._job
        args, kwargs = job.items[index]
        start = launch(job.function, args, kwargs, job.options, self._key_of(index))
        try:
            with contextlib.suppress(Exception):  # the state holds the error of its body
                await self._body(start)
            await start.program.when_idle().wait_async()
            error = await start.state.aerror()
        except asyncio.CancelledError:
            start.program.abort(Failure.cancelled("the batch was ended early"))
            raise
        self._num_running -= 1
        assert self._outcomes is not None
        self._outcomes.put_nowait(Outcome(index, start.state, error))
        self._pump()

    async def _body(self, start: Launch) -> None:
        if self._crew is None:
            return await run_body_async(start)
        done = self._crew.run(lambda: run_body(start))
        self._bodies.add(done)
        try:
            await done.wait_async()
        finally:
            if done.done:
                self._bodies.discard(done)

    async def close(self) -> None:
        """Cancels what has not ended, and waits for its threads as long as they may need."""
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_TIMEOUT_S)
        deadline = time.monotonic() + _CLOSE_TIMEOUT_S
        for done in list(self._bodies):
            with contextlib.suppress(Exception, asyncio.CancelledError):
                await asyncio.wait_for(done.wait_async(), max(0.0, deadline - time.monotonic()))
        if self._crew is not None:
            self._crew.close()


def run_batch(job: BatchJob) -> list[ProgramState]:
    """Runs all items and returns their states in order, each finished.

    With on_error "raise", raises BatchError for the first item that failed, after all have ended.
    """
    if not job.items:
        return []
    refuse_blocking("run_batch()", "await f.arun_batch(...)")
    job, key_of = job.with_keys()
    outcomes: list[Outcome | None] = [None] * len(job.items)
    with progress(job) as advance:
        for outcome in _completed(job, key_of, window=len(job.items))[0]:
            outcomes[outcome.index] = outcome
            report(job, outcome)
            advance()
    return results(job, outcomes)


def iterate_batch(job: BatchJob) -> Generator[ProgramState, None, None]:
    """The states in order as they are ready; closing the iterator cancels the rest.

    With on_error "raise", raises BatchError when the turn of an item comes that failed.
    """
    if not job.items:
        return
    refuse_blocking("run_batch()", "await f.arun_batch(...)")
    job, key_of = job.with_keys()
    waiting: dict[int, Outcome] = {}
    index = 0
    completed, batch = _completed(job, key_of, max(GENERATOR_WINDOW, job.limit))
    with progress(job) as advance, contextlib.closing(completed):
        for outcome in completed:
            waiting[outcome.index] = outcome
            report(job, outcome)
            advance()
            while index in waiting:
                ready = waiting.pop(index)
                raise_for(job, ready)
                yield ready.state
                index += 1
                if batch is not None:
                    loop.call_soon(batch.allow, index)


async def arun_batch(job: BatchJob) -> list[ProgramState]:
    """`run_batch` for async code; `async def` bodies run on the caller's loop."""
    if not job.items:
        return []
    job, key_of = job.with_keys()
    outcomes: list[Outcome | None] = [None] * len(job.items)
    with progress(job) as advance:
        async with contextlib.aclosing(_completed_async(job, key_of)) as completed:
            async for outcome in completed:
                outcomes[outcome.index] = outcome
                report(job, outcome)
                advance()
    return results(job, outcomes)


def _completed(
    job: BatchJob, key_of: Callable[[int], int], window: int
) -> tuple[Any, Batch | None]:
    crew = None if job.is_async else Crew(job.limit)
    if crew is not None and crew.size == 0:
        return _completed_here(job, key_of), None
    batch = Batch(job, key_of, window, crew)
    return _completed_on_loop(job, batch), batch


def _completed_on_loop(job: BatchJob, batch: Batch) -> Iterator[Outcome]:
    try:
        num_missing = len(job.items)
        while num_missing:
            found = loop.run_blocking(batch.next_done())
            num_missing -= len(found)
            yield from found
    finally:
        if loop.on_loop_thread():  # the garbage collector may close a generator anywhere
            loop.spawn(batch.close())
        else:
            loop.run_blocking(batch.close())


def _completed_here(job: BatchJob, key_of: Callable[[int], int]) -> Iterator[Outcome]:
    """One after the other in this thread: where every thread is taken, a nested batch goes on."""
    for index, (args, kwargs) in enumerate(job.items):
        start = launch(job.function, args, kwargs, job.options, key_of(index))
        with contextlib.suppress(Exception):
            run_body(start)
        start.program.when_idle().wait()
        yield Outcome(index, start.state, start.state.error())


async def _completed_async(
    job: BatchJob, key_of: Callable[[int], int]
) -> AsyncGenerator[Outcome, None]:
    crew = None if job.is_async else Crew(job.limit)
    if crew is not None and crew.size == 0:
        raise CapacityError(
            f"{MAX_THREADS} program threads are in use; let some programs end, or write the "
            "program as async def, which needs no thread."
        )
    batch = Batch(job, key_of, len(job.items), crew)
    try:
        num_missing = len(job.items)
        while num_missing:
            found = await batch.next_done()
            num_missing -= len(found)
            for outcome in found:
                yield outcome
    finally:
        await batch.close()


def report(job: BatchJob, outcome: Outcome) -> None:
    """Tells the caller's `on_result` of an item that has ended."""
    if job.on_result is not None:
        job.on_result(outcome.index, outcome.state)


def raise_for(job: BatchJob, outcome: Outcome) -> None:
    """Raises BatchError where the item failed and the policy is to raise."""
    if outcome.error is not None and job.on_error == "raise":
        kind = type(outcome.error).__name__
        raise BatchError(
            f"item {outcome.index} of the batch failed: {kind}: {outcome.error}",
            index=outcome.index,
        ) from outcome.error


def results(job: BatchJob, outcomes: Sequence[Outcome | None]) -> list[ProgramState]:
    """The states in order; raises BatchError for the first that failed, where that is asked for."""
    states = []
    for outcome in outcomes:
        assert outcome is not None
        raise_for(job, outcome)
        states.append(outcome.state)
    return states


@contextmanager
def progress(job: BatchJob) -> Iterator[Callable[[], None]]:
    """A progress bar on standard error, or nothing; closed however the block ends."""
    if not job.progress_bar:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    bar = Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(file=sys.stderr)
    )
    with bar:
        task = bar.add_task("", total=len(job.items))
        yield lambda: bar.advance(task)
