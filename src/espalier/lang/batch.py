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
from espalier.errors import BatchError, CapacityError, ProgramTimeoutError, UserInputError
from espalier.lang import loop
from espalier.lang.config import chosen_backend
from espalier.lang.failure import Failure
from espalier.lang.interpreter import Launch, end_body, launch, run_body, run_body_async
from espalier.lang.limits import timed_out
from espalier.lang.options import RunOptions
from espalier.lang.program import current_program, next_run_key, refuse_blocking
from espalier.lang.promise import Promise
from espalier.lang.reading import ask
from espalier.lang.state import ProgramState
from espalier.lang.stream import Stream
from espalier.lang.workers import MAX_THREADS, Crew, auto_num_threads

GENERATOR_WINDOW = 200  # items that generator_style may be ahead of its reader, as in the reference
ASYNC_AUTO = 1024  # async programs at once where num_threads is "auto"
_CLOSE_TIMEOUT_S = 5.0
_GRACE_S = 2.0  # after the timeout of a batch: for bodies to come to their next read

NOT_BEGUN = "; it had not begun"
OnResult = Callable[[int, ProgramState], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one item ended; `failure` is also what readers of the state get."""

    index: int
    state: ProgramState
    failure: Failure | None


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
    timeout_s: float | None = None

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
        self._at_work: dict[int, tuple[Launch, asyncio.Task[None]]] = {}
        self._clocks: list[asyncio.TimerHandle] = []
        self._bodies: set[Promise[None]] = set()
        self._outcomes: asyncio.Queue[Outcome] | None = None
        self._closed = False

    async def next_done(self, at_least: int = 1) -> list[Outcome]:
        """The items that have ended since, at least so many, in no particular order."""
        if self._outcomes is None:
            self._outcomes = asyncio.Queue()
            if self._job.timeout_s is not None:
                self._call_later(self._job.timeout_s, self._time_out)
            self._pump()
        found = [await self._outcomes.get()]
        while len(found) < at_least or not self._outcomes.empty():
            found.append(await self._outcomes.get())
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
            self._next += 1
            start = self._launch(index)
            task = asyncio.get_running_loop().create_task(self._run_one(index, start))
            self._num_running += 1
            self._at_work[index] = (start, task)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _launch(self, index: int) -> Launch:
        args, kwargs = self._job.items[index]
        return launch(self._job.function, args, kwargs, self._job.options, self._key_of(index))

    async def _run_one(self, index: int, start: Launch) -> None:
        try:
            with contextlib.suppress(Exception):  # the state holds the error of its body
                await self._body(start)
            # On the loop of programs, what the body has sent is here before its end is.
            if start.program.active or not loop.on_loop_thread():
                await start.program.when_idle().wait_async()
            failure = await failure_of(start.state.stream).wait_async()
        except asyncio.CancelledError:
            start.program.abort(Failure.cancelled("the batch was ended early"))
            raise
        self._settle(index, start, failure)

    def _settle(self, index: int, start: Launch, failure: Failure | None) -> None:
        if self._at_work.pop(index, None) is None:
            return  # the batch has given up on it
        self._num_running -= 1
        self._put(index, start, failure)
        self._pump()

    def _put(self, index: int, start: Launch, failure: Failure | None) -> None:
        assert self._outcomes is not None
        self._outcomes.put_nowait(Outcome(index, start.state, failure))

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self._clocks.append(asyncio.get_running_loop().call_later(delay_s, callback))

    def _time_out(self) -> None:
        """Ends every item: those at work by aborting them, the others before they begin."""
        self._closed = True
        for start, _ in list(self._at_work.values()):
            start.program.time_out("the batch", self._limit_s)
        for index in range(self._next, len(self._job.items)):
            start = self._launch(index)
            failure = refuse(start, timed_out("the batch", self._limit_s, NOT_BEGUN))
            self._put(index, start, failure)
        self._call_later(_GRACE_S, self._give_up)

    @property
    def _limit_s(self) -> float:
        assert self._job.timeout_s is not None
        return self._job.timeout_s

    def _give_up(self) -> None:
        """Waits no longer for bodies that do not come to a read."""
        for index, (start, task) in list(self._at_work.items()):
            task.cancel()
            self._settle(index, start, start.program.failure)

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
        for clock in self._clocks:
            clock.cancel()
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
        is_told = job.progress_bar or job.on_result is not None
        for outcome in _completed(job, key_of, len(job.items), is_told)[0]:
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
    completed, batch = _completed(job, key_of, max(GENERATOR_WINDOW, job.limit), is_told=True)
    with progress(job) as advance, contextlib.closing(completed):
        for outcome in completed:
            waiting[outcome.index] = outcome
            report(job, outcome)
            advance()
            while index in waiting:
                ready = waiting.pop(index)
                if ready.failure is not None and job.on_error == "raise":
                    raise batch_error(ready.index, ready.failure, 1, len(job.items))
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
    job: BatchJob, key_of: Callable[[int], int], window: int, is_told: bool
) -> tuple[Any, Batch | None]:
    crew = None if job.is_async else Crew(job.limit)
    if crew is not None and crew.size == 0:
        return _completed_here(job, key_of), None
    batch = Batch(job, key_of, window, crew)
    return _completed_on_loop(job, batch, is_told), batch


def _completed_on_loop(job: BatchJob, batch: Batch, is_told: bool) -> Iterator[Outcome]:
    try:
        num_missing = len(job.items)
        while num_missing:
            # Where nobody hears of single items, this thread need not wake for each.
            found = loop.run_blocking(batch.next_done(1 if is_told else num_missing))
            num_missing -= len(found)
            yield from found
    finally:
        if loop.on_loop_thread():  # the garbage collector may close a generator anywhere
            loop.spawn(batch.close())
        else:
            loop.run_blocking(batch.close())


def _completed_here(job: BatchJob, key_of: Callable[[int], int]) -> Iterator[Outcome]:
    """One after the other in this thread: where every thread is taken, a nested batch goes on."""
    deadline = None if job.timeout_s is None else time.monotonic() + job.timeout_s
    for index, (args, kwargs) in enumerate(job.items):
        start = launch(job.function, args, kwargs, job.options, key_of(index))
        if deadline is not None and job.timeout_s is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                error = timed_out("the batch", job.timeout_s, NOT_BEGUN)
                yield Outcome(index, start.state, refuse(start, error))
                continue
            start.program.limit_time(left_s, "the rest of the batch")
        with contextlib.suppress(Exception):
            run_body(start)
        start.program.wait(start.program.when_idle())
        yield Outcome(index, start.state, failure_of(start.state.stream).wait())


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


def failure_of(stream: Stream) -> Promise[Failure | None]:
    """What went wrong in a state, unread, once everything submitted to it is done."""
    return ask(stream, lambda _: None, lambda failure: failure)


def refuse(start: Launch, error: ProgramTimeoutError) -> Failure:
    """Ends a program that will not begin."""
    failure = Failure(error)
    start.program.abort(failure)
    end_body(start)
    return failure


def batch_error(index: int, failure: Failure, num_failed: int, num_items: int) -> BatchError:
    """The error of a batch in which items failed, the first of them at `index`."""
    cause = failure.raised()
    more = f" {num_failed} of {num_items} items failed." if num_failed > 1 else ""
    error = BatchError(
        f"item {index} of the batch failed: {type(cause).__name__}: {cause}{more}", index=index
    )
    error.__cause__ = cause
    return error


def results(job: BatchJob, outcomes: Sequence[Outcome | None]) -> list[ProgramState]:
    """The states in order; raises BatchError for the first that failed, where that is asked for."""
    states, failed = [], []
    for outcome in outcomes:
        assert outcome is not None
        states.append(outcome.state)
        if outcome.failure is not None:
            failed.append((outcome.index, outcome.failure))
    if failed and job.on_error == "raise":
        for _, failure in failed:
            failure.mark_read()  # the error of the batch counts them
        raise batch_error(*failed[0], len(failed), len(states))
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
