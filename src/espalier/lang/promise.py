"""A value that comes later and is awaited from any thread or event loop.

It must not know what the value is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
ErrorSource = Callable[[], BaseException]  # makes a fresh exception for each reader


class Promise(Generic[T]):
    """Set once, by `resolve` or `fail`; read by `wait`, `wait_async` or `result`."""

    __slots__ = ("_callbacks", "_error", "_lock", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] | None = None
        self._value: T | None = None
        self._error: ErrorSource | None = None

    @classmethod
    def resolved(cls, value: T) -> Promise[T]:
        """A promise that holds its value already."""
        promise: Promise[T] = cls()
        promise._value = value
        promise.done = True
        return promise

    def resolve(self, value: T) -> None:
        """Sets the value; a second setting is ignored."""
        self._finish(value, None)

    def fail(self, error: ErrorSource) -> None:
        """Sets an error that `result` raises; a second setting is ignored."""
        self._finish(None, error)

    def _finish(self, value: T | None, error: ErrorSource | None) -> None:
        with self._lock:
            if self.done:
                return
            self._value, self._error, self.done = value, error, True
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def when_done(self, callback: Callable[[], None]) -> bool:
        """Calls back once set, from the setting thread; false (and no call) if set already."""
        with self._lock:
            if self.done:
                return False
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(callback)
            return True

    def result(self) -> T:
        """The value, or raises the error; only once done."""
        assert self.done, "result of a promise that is not done"
        if self._error is not None:
            raise self._error()
        return self._value  # type: ignore[return-value]

    def wait(self) -> T:
        """Blocks this thread until set."""
        self.done_within(None)
        return self.result()

    def done_within(self, timeout_s: float | None) -> bool:
        """Blocks this thread until set, at most `timeout_s` seconds; says whether it is set."""
        if self.done:
            return True
        gate = threading.Lock()
        gate.acquire()
        if not self.when_done(gate.release):
            return True
        if timeout_s is not None:
            timeout_s = min(max(0.0, timeout_s), threading.TIMEOUT_MAX)
        return gate.acquire(timeout=-1 if timeout_s is None else timeout_s)

    async def wait_async(self) -> T:
        """Awaits the value on the running loop, whichever it is."""
        if not self.done:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            thread = threading.get_ident()

            def wake() -> None:
                if threading.get_ident() == thread:
                    release(future)
                else:
                    with contextlib.suppress(RuntimeError):  # the reader's loop has been closed
                        loop.call_soon_threadsafe(release, future)

            if self.when_done(wake):
                await future
        return self.result()


def release(future: asyncio.Future[None]) -> None:
    """Wakes the task that awaits a future, unless it has gone."""
    if not future.done():
        future.set_result(None)
