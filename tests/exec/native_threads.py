"""Threads of this process, native ones too, as the system lists them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import numpy as np

from espalier._native import ThreadPool

_PATIENCE_S = 30.0


def thread_ids() -> set[str]:
    """All threads there are, and perhaps some that have been joined: they leave a moment later."""
    return set(os.listdir("/proc/self/task"))


def threads_started_since(before: set[str], count: int) -> set[str]:
    """The new threads, once there are `count`; what there are at last where it takes too long."""
    await_that(lambda: len(thread_ids() - before) == count)
    return thread_ids() - before


def have_left(threads: set[str]) -> bool:
    """True once none of the threads is there any more; false where it takes too long."""
    return await_that(lambda: not thread_ids() & threads)


def await_that(is_so: Callable[[], bool]) -> bool:
    """Asks until it is so, for 30 seconds at most; returns the last answer."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (answer := is_so()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return answer


class Busy:
    """Every thread of a pool computes for as long as this context lasts."""

    def __init__(self, pool: ThreadPool) -> None:
        self.counts: list[int] = []  # how many threads computed, once it has ended
        self._flag = np.zeros(1, np.uint8)
        self.thread = threading.Thread(
            target=lambda: self.counts.append(pool.compute_until(self._flag)), daemon=True
        )

    def __enter__(self) -> Busy:
        self.thread.start()
        assert await_that(lambda: bool(self._flag[0] == 1))
        return self

    def __exit__(self, *_: object) -> None:
        self._flag[0] = 2
        self.thread.join(60)
