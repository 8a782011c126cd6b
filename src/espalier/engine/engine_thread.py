"""The thread that steps an EngineCore, and how work and results cross to other threads.

It owns the thread, its inbox and the table of listeners. What a request is it must not know.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from espalier.engine.engine import EngineCore
from espalier.engine.request import EngineEvent, RequestFailure, RequestOutput
from espalier.engine.request_state import RequestState
from espalier.engine.stats import EngineStats
from espalier.errors import BackendError, EngineClosedError, EspalierError

OnOutput = Callable[[RequestOutput | EspalierError], None]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """Who hears of a request: a callback, run in an event loop, or without one in the thread."""

    request_id: str
    on_output: OnOutput
    loop: asyncio.AbstractEventLoop | None


@dataclass(frozen=True, slots=True)
class _Submit:
    state: RequestState
    listener: Listener


@dataclass(frozen=True, slots=True)
class _Cancel:
    listener: Listener


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[[EngineCore], bool]
    result: Future[bool] = field(default_factory=Future)


_Command = _Submit | _Cancel | _Call
_Note = tuple[Listener, RequestOutput | EspalierError]


class EngineThread:
    """Steps the core while it has work and sleeps while it has none. Starts when made."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._process_id = os.getpid()
        self._wakes = threading.Condition()
        self._inbox: list[_Command] = []
        self._is_closing = False
        self._ended = threading.Event()
        self._death: BaseException | None = None
        self._listeners: dict[str, Listener] = {}  # the thread's own
        self.stats: EngineStats = core.stats()  # as of the last step
        # A daemon, so that a program that forgets to shut down can end; see AsyncEngine.
        self._thread = threading.Thread(target=self._run, name="espalier-engine", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """True until the thread has ended."""
        return self._thread.is_alive()

    def submit(self, state: RequestState, listener: Listener) -> None:
        """Queues a request. Raises EngineClosedError or BackendError where nobody would run it."""
        self._send(_Submit(state, listener))

    def cancel(self, listener: Listener) -> None:
        """Ends the listener's request, if it has not ended."""
        if self._is_elsewhere():
            return
        with self._wakes:
            if self._is_closing or self._death is not None:
                return
            self._inbox.append(_Cancel(listener))
            self._wakes.notify()

    def call(self, function: Callable[[EngineCore], bool]) -> bool:
        """Runs a function on the core between two steps and waits for its result."""
        if threading.current_thread() is self._thread:
            return function(self._core)
        command = _Call(function)
        self._send(command)
        return command.result.result()

    def close(self) -> None:
        """Fails what is left with EngineClosedError, closes the core, and waits for the thread."""
        if self._is_elsewhere():
            return
        with self._wakes:
            self._is_closing = True
            self._wakes.notify()
        if threading.current_thread() is not self._thread:
            self._join()

    def _join(self) -> None:
        """Waits for the thread, also where ^C comes meanwhile, which is raised afterwards.

        A process that ends while the thread is in native code ends by SIGABRT; the thread needs a
        step's time at most. `Thread.join` cannot wait twice: interrupted, it takes the thread for
        ended.
        """
        interrupt: KeyboardInterrupt | None = None
        while not self._ended.is_set():
            try:
                self._ended.wait()
            except KeyboardInterrupt as error:  # noqa: PERF203 - the loop is for this
                interrupt = error
        self._thread.join()
        if interrupt is not None:
            raise interrupt

    def _is_elsewhere(self) -> bool:
        """True in a forked process: it has no such thread, and the lock may be held for ever."""
        return self._process_id != os.getpid()

    def _send(self, command: _Command) -> None:
        if self._is_elsewhere():
            raise EngineClosedError(
                f"the engine runs in process {self._process_id}, of which this process is a fork; "
                "start an engine in each process, or processes by 'spawn'."
            )
        with self._wakes:
            if self._death is not None:
                raise _dead_error(self._death)
            if self._is_closing:
                raise EngineClosedError("the engine was shut down; start another one.")
            self._inbox.append(command)
            self._wakes.notify()

    def _run(self) -> None:
        try:
            while (commands := self._next_commands()) is not None:
                notes = self._obey(commands)
                events = self._core.step() if self._core.has_work else self._core.take_events()
                self.stats = self._core.stats()
                self._deliver([*notes, *self._notes(events)])
            events = self._core.fail_all(lambda _: _closed_error())
            self.stats = self._core.stats()
            self._deliver(self._notes(events))
            self._refuse_inbox(_closed_error)
        except BaseException as error:
            self._die(error)
        finally:
            try:
                self._core.close()
            finally:
                self._ended.set()

    def _next_commands(self) -> list[_Command] | None:
        """What was sent; sleeps while there is nothing to do. None when the thread shall end."""
        with self._wakes:
            while not (self._inbox or self._is_closing or self._core.has_work):
                self._wakes.wait()
            if self._is_closing:
                return None
            commands, self._inbox = self._inbox, []
            return commands

    def _obey(self, commands: Sequence[_Command]) -> list[_Note]:
        refused: list[_Note] = []
        for command in commands:
            if isinstance(command, _Submit):
                try:
                    self._core.add(command.state)
                except EspalierError as error:
                    refused.append((command.listener, error))
                else:
                    self._listeners[command.listener.request_id] = command.listener
            elif isinstance(command, _Cancel):
                request_id = command.listener.request_id
                if self._listeners.get(request_id) is command.listener:
                    self._core.cancel(request_id)
            else:
                try:
                    command.result.set_result(command.function(self._core))
                except Exception as error:
                    command.result.set_exception(error)
        return refused

    def _notes(self, events: Iterable[EngineEvent]) -> list[_Note]:
        notes: list[_Note] = []
        for event in events:
            if isinstance(event, RequestFailure):
                notes.append((self._listeners.pop(event.request_id), event.error))
            elif event.finish_reason is not None:
                notes.append((self._listeners.pop(event.request_id), event))
            else:
                notes.append((self._listeners[event.request_id], event))
        return notes

    def _deliver(self, notes: Sequence[_Note]) -> None:
        """Hands notes out, those of one event loop in one call to it."""
        by_loop: dict[asyncio.AbstractEventLoop, list[_Note]] = {}
        for note in notes:
            loop = note[0].loop
            if loop is not None:
                by_loop.setdefault(loop, []).append(note)
            else:
                self._tell_here(*note)
        for loop, batch in by_loop.items():
            self._tell_in_loop(loop, batch)

    def _tell_in_loop(self, loop: asyncio.AbstractEventLoop, batch: Sequence[_Note]) -> None:
        try:
            loop.call_soon_threadsafe(_tell_all, loop, batch)
        except RuntimeError:  # the loop is closed: nobody listens any more
            for listener, _ in batch:
                self._forget(listener)

    def _tell_here(self, listener: Listener, note: RequestOutput | EspalierError) -> None:
        try:
            listener.on_output(note)
        except Exception:
            _log.exception("the callback of request %s raised; it is ended", listener.request_id)
            self._forget(listener)

    def _forget(self, listener: Listener) -> None:
        if self._listeners.get(listener.request_id) is listener:
            self._core.cancel(listener.request_id)
            self._core.take_events()  # the cancellation: nobody to tell
            self.stats = self._core.stats()
            del self._listeners[listener.request_id]

    def _refuse_inbox(self, make_error: Callable[[], EspalierError]) -> None:
        with self._wakes:
            commands, self._inbox = self._inbox, []
        for command in commands:
            if isinstance(command, _Submit):
                self._deliver([(command.listener, make_error())])
            elif isinstance(command, _Call):
                command.result.set_exception(make_error())

    def _die(self, error: BaseException) -> None:
        """Fails everything: an error that is no request's own has reached the loop."""
        _log.critical("the engine's thread died; all its requests fail", exc_info=error)
        with self._wakes:
            self._death = error
        listeners, self._listeners = list(self._listeners.values()), {}
        for listener in listeners:
            self._deliver([(listener, _dead_error(error))])
        self._refuse_inbox(lambda: _dead_error(error))


def _tell_all(loop: asyncio.AbstractEventLoop, notes: Sequence[_Note]) -> None:
    for listener, note in notes:
        _tell(loop, listener, note)


def _tell(
    loop: asyncio.AbstractEventLoop, listener: Listener, note: RequestOutput | EspalierError
) -> None:
    try:
        listener.on_output(note)
    except Exception as error:
        # Not raised: the notes after this one are other requests'.
        what = f"the callback of request {listener.request_id} raised"
        loop.call_exception_handler({"message": what, "exception": error})


def _closed_error() -> EngineClosedError:
    return EngineClosedError("the engine was shut down before the request ended.")


def _dead_error(death: BaseException) -> BackendError:
    error = BackendError(
        f"the engine's thread died of {type(death).__name__}: {death}. Start another engine."
    )
    error.__cause__ = death
    return error
