"""One run of a program: its backend, options, seed, the streams at work, and how it ends.

It must not know primitives.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import uuid
import weakref
from typing import TYPE_CHECKING, Any

from espalier.backends.base import Backend, RoleTemplate, derive_seed
from espalier.errors import ChatTemplateError, ProgramError
from espalier.lang import loop
from espalier.lang.chat_template import template_for_model
from espalier.lang.failure import Failure
from espalier.lang.limits import Clock, timed_out
from espalier.lang.options import RunOptions
from espalier.lang.promise import Promise
from espalier.lang.recording import RunRecorder
from espalier.lang.usage import UsageNode, active_logs
from espalier.types import Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_CALLS_IN_FLIGHT = 1024  # per backend; more wait in the language
MAX_PLACES = 3  # calls at work that the error of a timeout names


class ActiveStream:
    """What a program needs of a stream that is at work."""

    __slots__ = ("__weakref__",)

    def stop(self, failure: Failure) -> None:
        """Cancels what the stream has submitted; on the loop's thread."""
        raise NotImplementedError

    def at_work(self) -> str | None:
        """The call that the stream waits for, with its line; None where there is none."""
        return None


class Program:
    """Shared by a state and all of its forks."""

    def __init__(
        self,
        backend: Backend,
        options: RunOptions,
        key: int,
        recorder: RunRecorder | None = None,
        name: str = "program",
    ) -> None:
        self.name = name
        self.backend = backend
        self.options = options
        self.key = key
        self.node = UsageNode()
        self.recorder = recorder  # None where the run is not recorded
        self.failure: Failure | None = None
        self.ret_value: Any = None
        self.read_names: set[str] = set()  # variables whose value somebody has asked for
        self.body_ended: Promise[None] = Promise()
        self.active: set[ActiveStream] = set()
        # Weak sets cost more than all else here, and most programs have no use for them.
        self._streams: weakref.WeakSet[ActiveStream] | None = None
        self._lock = threading.Lock()
        self._idle: list[Promise[None]] = []
        self._inner: weakref.WeakSet[Program] | None = None
        self._clocks: list[Clock] = []
        self._stop_body: Callable[[], None] | None = None
        self._logs = active_logs()
        self._nested = itertools.count()
        self._template: RoleTemplate | None = None
        self._stops: tuple[str, ...] | None = None
        self.reads_chat = bool(getattr(backend, "reads_chat", False))
        self.state_id = uuid.uuid4().hex if self.reads_chat else ""
        for log in self._logs:
            log.program_started(backend.model_name)

    @property
    def seed(self) -> int | None:
        """The seed of the run, or None: then calls differ by their key alone."""
        return self.options.seed

    def role_template(self) -> RoleTemplate:
        """The backend's chat template; where the model has none, one by its name."""
        if self._template is None:
            backend = self.backend
            self._template = template_for_model(backend.model_name, backend.role_template)
        return self._template

    def template_stops(self) -> tuple[str, ...]:
        """Stops of the chat template, none where the model has none and no role has been used."""
        if self._stops is None:
            try:
                self._stops = tuple((self._template or self.backend.role_template()).stop)
            except ChatTemplateError:
                return ()
        return self._stops

    def nested_key(self) -> int:
        """Key of the next program that this one's body runs."""
        return derive_seed(self.key, next(self._nested), 1)

    def record(self, node: UsageNode, usage: Usage) -> None:
        """Notes what a call of a state cost; on the loop's thread."""
        node.usage.add(usage)
        for log in self._logs:
            log.call_ended(usage)

    def register(self, stream: ActiveStream) -> None:
        """Notes a stream of a program that streams."""
        with self._lock:
            if self._streams is None:
                self._streams = weakref.WeakSet()
            self._streams.add(stream)

    def streams(self) -> list[ActiveStream]:
        """The streams that were registered and that somebody still holds."""
        with self._lock:
            return [] if self._streams is None else list(self._streams)

    def end_body(self) -> None:
        """Says that the body will submit nothing more."""
        self.body_ended.resolve(None)
        self._stop_body = None
        if self._clocks:
            loop.call_soon(self._stop_clocks)
        if self.recorder is not None:
            self.recorder.ended()
        for log in self._logs:
            log.program_ended()

    def has_ended(self) -> bool:
        """True where the body has returned and no stream is at work; on the loop's thread."""
        return self.body_ended.done and not self.active

    @property
    def is_limited(self) -> bool:
        """True where the program has a timeout."""
        return bool(self._clocks)

    def limit_time(self, timeout_s: float, what: str | None = None) -> None:
        """Has the program aborted with ProgramTimeoutError if it has not ended in time."""
        self._clocks.append(Clock(self, what or f"program {self.name!r}", timeout_s))

    def time_out(self, what: str, timeout_s: float) -> None:
        """Ends the program with a ProgramTimeoutError that says what was at work."""
        places = [place for stream in self.active if (place := stream.at_work()) is not None]
        more = f" and {len(places) - MAX_PLACES} more" if len(places) > MAX_PLACES else ""
        detail = f"; at work: {', '.join(places[:MAX_PLACES])}{more}" if places else ""
        self.abort(Failure(timed_out(what, timeout_s, detail)))

    def _stop_clocks(self) -> None:
        if self.has_ended():
            for clock in self._clocks:
                clock.stop()

    def add_inner(self, program: Program) -> None:
        """Notes a program that this one's body runs: what ends this one ends it too."""
        with self._lock:
            if self._inner is None:
                self._inner = weakref.WeakSet()
            self._inner.add(program)
        if self.failure is not None:
            program.abort(self.failure)

    def when_aborted(self, stop_body: Callable[[], None]) -> None:
        """Has a body that waits on an event loop ended where the program is aborted."""
        self._stop_body = stop_body
        if self.failure is not None:
            stop_body()

    def abort(self, failure: Failure) -> None:
        """Cancels everything that is submitted and whatever will be; from any thread."""
        if self.failure is None:
            self.failure = failure
        if self._stop_body is not None:
            self._stop_body()
        loop.call_soon(self._stop_all)

    def interrupt(self, error: BaseException) -> None:
        """Aborts the program where a thread that waited for it was interrupted, as by ^C."""
        self.abort(Failure.of_body(error))

    def wait(self, promise: Promise[Any], timeout_s: float | None = None) -> bool:
        """Blocks until a promise is set, or for so long; an interrupt aborts the program."""
        try:
            return promise.done_within(timeout_s)
        except BaseException as error:
            self.interrupt(error)
            raise

    def cancel(self, failure: Failure) -> None:
        """Cancels what has not ended and leaves what has as it is; from any thread."""
        if self.body_ended.done:
            loop.call_soon(self._cancel_unfinished, failure)
        else:
            self.abort(failure)

    def _cancel_unfinished(self, failure: Failure) -> None:
        for stream in list(self.active):
            stream.stop(failure)
        self._abort_inner(failure)

    def _inner_programs(self) -> list[Program]:
        with self._lock:
            return [] if self._inner is None else list(self._inner)

    def _abort_inner(self, failure: Failure) -> None:
        for program in self._inner_programs():
            if not program.has_ended():
                program.abort(failure)

    def _stop_all(self) -> None:
        assert self.failure is not None
        for stream in list(self.active):
            stream.stop(self.failure)
        self._abort_inner(self.failure)

    def stream_started(self, stream: ActiveStream) -> None:
        """Notes a stream at work; on the loop's thread."""
        self.active.add(stream)

    def stream_stopped(self, stream: ActiveStream) -> None:
        """Notes that a stream has nothing to do; on the loop's thread."""
        self.active.discard(stream)
        if self.active:
            return
        if self._clocks:
            self._stop_clocks()
        if self._idle:
            waiting, self._idle = self._idle, []
            for promise in waiting:
                promise.resolve(None)

    def when_idle(self) -> Promise[None]:
        """Done once no stream of the program is at work."""
        promise: Promise[None] = Promise()
        # Queued on the loop's own thread too: behind the starts of streams that are queued there.
        loop.call_soon(self._await_idle, promise)
        return promise

    def when_all_idle(self) -> list[Promise[None]]:
        """`when_idle` of this program and of those that its body runs, at any depth."""
        found, waiting = [], [self]
        while waiting:
            program = waiting.pop()
            found.append(program.when_idle())
            waiting += program._inner_programs()
        return found

    def _await_idle(self, promise: Promise[None]) -> None:
        if self.active:
            self._idle.append(promise)
        else:
            promise.resolve(None)


# The program whose body runs here, and the thread on which an `async def` body must not block.
current_program: contextvars.ContextVar[Program | None] = contextvars.ContextVar(
    "espalier_program", default=None
)
async_body_thread: contextvars.ContextVar[int | None] = contextvars.ContextVar(
    "espalier_async_body_thread", default=None
)


def may_not_block() -> bool:
    """True where blocking this thread would never end or would stop its loop."""
    return loop.on_loop_thread() or async_body_thread.get() == threading.get_ident()


def refuse_blocking(what: str, instead: str) -> None:
    """Raises ProgramError where blocking this thread would never end or would stop its loop."""
    if may_not_block():
        raise ProgramError(
            f"{what} blocks, which stops the event loop that it waits for; in an async program "
            f"write {instead}."
        )


_run_counts: weakref.WeakKeyDictionary[Any, Iterator[int]] = weakref.WeakKeyDictionary()
_call_slots: weakref.WeakKeyDictionary[Any, asyncio.Semaphore] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def next_run_key(backend: Backend) -> int:
    """Key of the next run: of the calling program's next nested one, else of the backend's next."""
    outer = current_program.get()
    if outer is not None:
        return outer.nested_key()
    with _lock:
        counter = _run_counts.get(backend)
        if counter is None:
            counter = _run_counts[backend] = itertools.count()
        return derive_seed(0, next(counter))


def call_slots(backend: Backend) -> asyncio.Semaphore:
    """Bounds the calls of all programs that a backend has at once; on the loop's thread."""
    slots = _call_slots.get(backend)
    if slots is None:
        slots = _call_slots[backend] = asyncio.Semaphore(MAX_CALLS_IN_FLIGHT)
    return slots
