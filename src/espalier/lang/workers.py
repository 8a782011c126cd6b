"""Threads for the bodies of `def` programs: few, bounded, and gone when there is nothing to do."""

from __future__ import annotations

import contextvars
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from espalier.errors import CapacityError
from espalier.lang.promise import Promise

T = TypeVar("T")
MAX_THREADS = 1024  # of all crews of the process
IDLE_S = 0.2
THREAD_NAME = "espalier-program"


def auto_num_threads() -> int:
    """Threads that "auto" means, before the size of a batch caps it (as in the reference)."""
    return max(96, 16 * (os.cpu_count() or 1))


class _Budget:
    def __init__(self, limit: int) -> None:
        self._free = limit
        self._lock = threading.Lock()

    def borrow(self, wanted: int) -> int:
        """Takes up to `wanted` threads and says how many."""
        with self._lock:
            taken = min(wanted, self._free)
            self._free -= taken
            return taken

    def give_back(self, count: int) -> None:
        with self._lock:
            self._free += count


_budget = _Budget(MAX_THREADS)
_in_worker = threading.local()


def in_worker() -> bool:
    """True in a thread of a crew."""
    return getattr(_in_worker, "yes", False)


class Crew:
    """Runs functions on at most `size` threads, which start when they are needed.

    A thread ends when the crew is closed or when nothing has come for `IDLE_S` seconds.
    """

    def __init__(self, size: int) -> None:
        self.size = _budget.borrow(size)
        self._jobs: deque[Callable[[], None]] = deque()
        self._num_running = self._num_idle = 0
        self._changed = threading.Condition()
        self._closed = False

    def run(self, function: Callable[[], T]) -> Promise[T]:
        """Queues a function, with the context variables of the caller."""
        promise: Promise[T] = Promise()
        context = contextvars.copy_context()

        def job() -> None:
            try:
                promise.resolve(context.run(function))
            except BaseException as error:
                promise.fail(lambda error=error: error)  # type: ignore[misc]

        with self._changed:
            assert not self._closed, "a closed crew was given work"
            self._jobs.append(job)
            start = self._num_idle < len(self._jobs) and self._num_running < self.size
            self._num_running += start
            if not start:
                self._changed.notify()
        if start:
            threading.Thread(target=self._work, name=THREAD_NAME, daemon=True).start()
        return promise

    def is_full(self) -> bool:
        """True where a function would have to wait for a thread."""
        with self._changed:
            return not self._num_idle and self._num_running >= self.size

    def _work(self) -> None:
        _in_worker.yes = True
        while (job := self._next_job()) is not None:
            job()
            del job  # the last reference to a program's state must not wait for the next job

    def _next_job(self) -> Callable[[], None] | None:
        with self._changed:
            self._num_idle += 1
            while not self._jobs and not self._closed:
                if not self._changed.wait(IDLE_S):
                    break
            self._num_idle -= 1
            if self._jobs:
                return self._jobs.popleft()
            self._num_running -= 1
            self._return_threads()
            return None

    def close(self) -> None:
        """Takes no more work; the threads go back to the budget when they end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._return_threads()

    def _return_threads(self) -> None:
        if self._closed and self._num_running == 0 and self.size:
            _budget.give_back(self.size)
            self.size = 0


def run_in_thread(function: Callable[[], None]) -> None:
    """Runs a function on a thread of its own; raises CapacityError where there are too many."""
    crew = Crew(1)
    if crew.size == 0:
        raise CapacityError(
            f"{MAX_THREADS} program threads are in use; let some programs end, or write the "
            "program as async def, which needs no thread."
        )
    crew.run(function)
    crew.close()


_shared: Crew | None = None
_shared_lock = threading.Lock()


def shared_crew() -> Crew:
    """The crew of single programs that are awaited."""
    global _shared  # noqa: PLW0603
    with _shared_lock:
        if _shared is None:
            _shared = Crew(auto_num_threads())
        return _shared
