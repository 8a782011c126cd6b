"""The stream of a state: a queue of operations that one task at a time carries out in order.

Submission happens in the user's thread and returns at once; everything else happens on the loop's
thread. It must not know which operations there are.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from espalier.backends.base import Chat, ChoiceScores, Chosen, GenerateResult, derive_seed
from espalier.errors import ProgramError
from espalier.lang import loop
from espalier.lang.failure import Failure
from espalier.lang.feed import Feed
from espalier.lang.ir import SglExpr
from espalier.lang.limits import timed_out
from espalier.lang.prefix import SharedPrefix
from espalier.lang.program import ActiveStream, Program, call_slots
from espalier.lang.promise import Promise
from espalier.lang.recording import CallRecorder, StateRecorder
from espalier.lang.transcript import Transcript, extended
from espalier.lang.usage import UsageNode
from espalier.lang.variables import Scope, Variables
from espalier.report.record import SHARED_PREFIX

R = TypeVar("R", GenerateResult, ChoiceScores, Chosen)
_CALL, _FORK = 0, 1  # branches of a stream's keys


class Op(Protocol):
    """An operation of a stream."""

    @property
    def wakes(self) -> bool:
        """True where the stream must go on at once; constants wait for the next such operation."""
        ...

    @property
    def place(self) -> str | None:
        """The call of the model and its line in the user's program; None for anything else."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """Seconds that it may take; None: as long as it takes."""
        ...

    def run(self, stream: Stream) -> Awaitable[None] | None:
        """Carries it out, or returns what is to be awaited for that."""
        ...

    def failed(self, error: BaseException) -> Failure:
        """The failure that an error in `run` means for the stream."""
        ...

    def abandon(self, failure: Failure) -> None:
        """Tells whoever waits for it that it failed or will not be run."""
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a fork takes over from its parent at its place in the parent's order."""

    transcript: Transcript
    prefix: SharedPrefix | None
    num_cached_segments: int
    num_pieces: int = 0  # of the parent's record


ForkPoint = Promise[Snapshot | Failure]


class Stream(ActiveStream):
    """One prompt that grows.

    Attributes set by the submitting side: `variables`, `open_role`, `scopes` (open here),
    `joined`. On the loop's side:
    `transcript`, `failure`, `feed` (the text as it comes, where the program streams).
    """

    __slots__ = (
        "_lock",
        "_num_calls",
        "_num_forks",
        "_op",
        "_ops",
        "_prefix",
        "_scheduled",
        "_shared",
        "_task",
        "_waiting",
        "children",
        "failure",
        "feed",
        "is_root",
        "joined",
        "key",
        "node",
        "num_cached_segments",
        "num_inherited_messages",
        "num_inherited_segments",
        "open_role",
        "program",
        "record",
        "scopes",
        "transcript",
        "variables",
    )

    def __init__(
        self, program: Program, key: int, node: UsageNode, parent: Stream | None = None
    ) -> None:
        self.program, self.key, self.node = program, key, node
        self.transcript = Transcript()
        self.failure: Failure | None = None
        self.feed: Feed | None = Feed() if program.options.stream else None
        self.is_root = parent is None
        self.record: StateRecorder | None = None  # where the run is recorded
        self.joined = False
        self.scopes: list[Scope] = []
        self.children: weakref.WeakSet[Stream] | None = None  # made at the first fork
        self.num_cached_segments = self.num_inherited_segments = self.num_inherited_messages = 0
        if parent is None:
            self.variables = Variables()
            self.open_role: str | None = None
        else:
            self.variables = Variables(parent.variables.snapshot())
            self.open_role = parent.open_role
        self._prefix: SharedPrefix | None = None  # to wait for before the next call
        # Of the last fork: its segments, what its children begin with, and their common prompt.
        self._shared: tuple[int, tuple[SglExpr, ...], SharedPrefix] | None = None
        self._op: Op | None = None  # the one that is waited for
        self._ops: deque[Op] = deque()
        self._lock = threading.Lock()
        self._scheduled = self._waiting = False
        self._task: asyncio.Task[None] | None = None
        self._num_calls = self._num_forks = 0
        if self.feed is not None:
            program.register(self)  # at the end of the body its feed ends too

    # The submitting side.

    def check_open(self) -> None:
        """Raises where the stream takes nothing more.

        ProgramError where it has been joined; where the program was aborted (a timeout, ^C) while
        its body runs, what ended it, so that a body which only appends comes to its end as well.
        """
        if self.program.failure is not None and not self.program.body_ended.done:
            raise self.program.failure.raised()
        if self.joined:
            raise ProgramError(
                "this fork has been joined; append to the state that it came from instead."
            )

    def enqueue(self, ops: Sequence[Op]) -> None:
        """Queues operations and returns."""
        eager = self.feed is not None or any(op.wakes for op in ops)
        with self._lock:
            self._ops.extend(ops)
            start = eager and not self._scheduled
            self._scheduled = self._scheduled or start
        if start:
            loop.call_soon(self._start)

    def kick(self) -> None:
        """Carries out what has been left waiting."""
        with self._lock:
            start = bool(self._ops) and not self._scheduled
            self._scheduled = self._scheduled or start
        if start:
            loop.call_soon(self._start)

    def is_settled(self) -> bool:
        """True where nothing is queued and nothing runs."""
        with self._lock:
            return not self._ops and not self._scheduled

    def is_open(self) -> bool:
        """True where `check_open` raises nothing."""
        aborted = self.program.failure is not None and not self.program.body_ended.done
        return not self.joined and not aborted

    def next_call_key(self) -> int:
        """A key for the next call: the same in each run of the program."""
        self._num_calls += 1
        return derive_seed(self.key, _CALL, self._num_calls)

    def fork(self, point: ForkPoint, size: int, adopt: Callable[[ForkPoint], Op]) -> list[Stream]:
        """`size` streams that go on from a fork point, each beginning with an `adopt` operation."""
        self._num_forks += 1
        children = []
        if self.children is None:
            self.children = weakref.WeakSet()
        records = None if self.record is None else self.record.forks(size)
        for index in range(size):
            key = derive_seed(self.key, _FORK, self._num_forks, index)
            child = Stream(self.program, key, self.node.child(), self)
            child.record = None if records is None else records[index]
            child._ops.append(adopt(point))
            self.children.add(child)
            children.append(child)
        return children

    def cancel(self, failure: Failure) -> None:
        """Cancels this stream and its forks; from any thread."""
        loop.call_soon(self._cancel_all, failure)

    def cancel_unfinished(self, failure: Failure) -> Promise[None]:
        """Cancels what of this stream and its forks has not ended; done once nothing is at work."""
        ended: Promise[None] = Promise()
        loop.call_soon(self._cancel_unfinished, failure, ended)
        return ended

    def _cancel_all(self, failure: Failure) -> None:
        for stream in self._family():
            stream.stop(failure)

    def _cancel_unfinished(self, failure: Failure, ended: Promise[None]) -> None:
        tasks = []
        for stream in self._family():
            if stream._task is not None:
                stream.stop(failure)
                tasks.append(stream._task)
        if not tasks:
            ended.resolve(None)
        left = len(tasks)

        def one_ended(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                ended.resolve(None)

        for task in tasks:
            task.add_done_callback(one_ended)

    def _family(self) -> list[Stream]:
        found, stack = [], [self]
        while stack:
            stream = stack.pop()
            found.append(stream)
            stack.extend(stream.children or ())
        return found

    # The loop's side.

    def stop(self, failure: Failure) -> None:
        """Cancels what has been submitted and fails what will be."""
        self._fail(failure)
        if self._waiting and self._task is not None:
            self._task.cancel()

    def at_work(self) -> str | None:
        """The call that is waited for, with its line."""
        return None if self._op is None else self._op.place

    def _fail(self, failure: Failure) -> None:
        if self.failure is None:
            self.failure = failure
            if self.feed is not None:
                self.feed.close(self.failure.raised)

    def _start(self) -> None:
        self.program.stream_started(self)
        self._task = asyncio.get_running_loop().create_task(self._drain())

    async def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._ops:
                    self._scheduled = False
                    break
                op = self._ops.popleft()
            failure = self.failure or self.program.failure
            if failure is not None:
                self._fail(failure)
                op.abandon(failure)
            else:
                await self._carry_out(op)
        self._task = None
        self.program.stream_stopped(self)

    async def _carry_out(self, op: Op) -> None:
        try:
            pending = op.run(self)
            if pending is not None:
                self._waiting, self._op = True, op
                await (pending if op.timeout_s is None else self._within(op.timeout_s, pending))
        except asyncio.CancelledError:
            self._fail(self.failure or Failure.cancelled("the loop of programs was stopped"))
        except BaseException as error:  # SystemExit of a user's backend would end the loop
            self._fail(op.failed(error))
        finally:
            self._waiting, self._op = False, None
        if self.failure is not None:
            op.abandon(self.failure)

    async def _within(self, timeout_s: float, pending: Awaitable[None]) -> None:
        """Awaits an operation; raises ProgramTimeoutError where it takes longer."""
        this_loop = asyncio.get_running_loop()
        assert self._task is not None
        clock = this_loop.call_later(timeout_s, self._task.cancel)
        try:
            await pending
        except asyncio.CancelledError:
            if self.failure is not None or this_loop.time() < clock.when():
                raise
            raise timed_out("the call", timeout_s) from None
        finally:
            clock.cancel()

    def append_text(self, text: str) -> None:
        """Passes text that has joined the transcript on to whoever reads along."""
        if self.feed is not None:
            self.feed.push(text)

    def snapshot(self, size: int, shared: tuple[SglExpr, ...] = ()) -> Snapshot:
        """What forks start from; `size` > 1 has their common prompt computed once, in time.

        `shared` is what each of them is known to begin with: it belongs to the common prompt.
        """
        num_segments = len(self.transcript.segments)
        prefix, num_cached = self._prefix, self.num_cached_segments
        if size > 1 and (shared or num_segments > num_cached):
            if self._shared is None or self._shared[:2] != (num_segments, shared):
                prompt = extended(self.transcript, shared, self.program.role_template)
                self._shared = (
                    num_segments,
                    shared,
                    SharedPrefix(self.program, prompt, self._prefix, self._prefix_record()),
                )
            num_cached, _, prefix = self._shared
        num_pieces = 0 if self.record is None else len(self.record.record.pieces)
        return Snapshot(self.transcript.copy(), prefix, num_cached, num_pieces)

    def _prefix_record(self) -> CallRecorder | None:
        return None if self.record is None else self.record.call(SHARED_PREFIX, None, None)

    def begin_after(self, prefix: SharedPrefix) -> None:
        """Has the first call wait for a prompt that is known to begin this one."""
        self._prefix = prefix

    def adopt(self, snapshot: Snapshot) -> None:
        """Starts from a fork point."""
        self.transcript = snapshot.transcript.copy()
        self._prefix = snapshot.prefix
        self.num_cached_segments = snapshot.num_cached_segments
        self.num_inherited_segments = len(self.transcript.segments)
        self.num_inherited_messages = len(self.transcript.messages)
        if self.record is not None:
            self.record.began_with(snapshot.num_pieces)
        self.append_text(self.transcript.text())

    def chat(self) -> Chat | None:
        """The messages for the next call, where the backend reads them."""
        if not self.program.reads_chat:
            return None
        return self.transcript.chat(self.program.state_id)

    async def call(
        self, start: Callable[[], Awaitable[R]], record: CallRecorder | None = None
    ) -> R:
        """Makes a call of the model, after the prompt shared at the last fork, and counts it."""
        started_at_s = time.perf_counter()
        prefix, self._prefix = self._prefix, None
        if record is not None:
            record.started(self.transcript.prompt())
        if prefix is not None:
            await prefix.ready()
        async with call_slots(self.program.backend):
            if record is not None:
                record.sent()
            result = await start()
        result.usage.took(started_at_s, time.perf_counter())
        if record is not None:
            record.answered(result.usage, self.program.backend)
        if prefix is not None:
            prefix.settle(result.usage)
        self.program.record(self.node, result.usage)
        return result
