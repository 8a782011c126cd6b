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
    """Runs functions on at most `size` threads; a thread ends when nothing waits for it."""

    def __init__(self, size: int) -> None:
        self.size = _budget.borrow(size)
        self._jobs: deque[Callable[[], None]] = deque()
        self._num_running = 0
        self._lock = threading.Lock()
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

        with self._lock:
            assert not self._closed, "a closed crew was given work"
            self._jobs.append(job)
            start = self._num_running < self.size
            self._num_running += start
        if start:
            threading.Thread(target=self._work, name=THREAD_NAME, daemon=True).start()
        return promise

    def is_full(self) -> bool:
        """True where a function would have to wait for a thread."""
        with self._lock:
            return self._num_running >= self.size

    def _work(self) -> None:
        _in_worker.yes = True
        while True:
            with self._lock:
                if not self._jobs:
                    self._num_running -= 1
                    self._return_threads()
                    return
                job = self._jobs.popleft()
            job()
            del job  # the last reference to a program's state must not wait for the next job

    def close(self) -> None:
        """Takes no more work; the threads go back to the budget when they end."""
        with self._lock:
            self._closed = True
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
