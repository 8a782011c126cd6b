"""Counts of what programs cost: per state with its forks, and for everything in a process.

It must not know how calls are made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from espalier.types import Usage


class UsageNode:
    """What the calls of one state cost, and the nodes of its forks and nested programs."""

    __slots__ = ("children", "usage")

    def __init__(self) -> None:
        self.usage = Usage()
        self.children: list[UsageNode] = []

    def child(self) -> UsageNode:
        """A node for a fork."""
        node = UsageNode()
        self.children.append(node)
        return node

    def total(self) -> Usage:
        """The sum over this node and all below."""
        total = Usage()
        stack = [self]
        while stack:
            node = stack.pop()
            total.add(node.usage)
            stack.extend(node.children)
        return total


class UsageLog:
    """What all programs of the process cost while the log is on.

    Attributes:
        programs: runs that were started.
        usage: sum over their calls that have ended.
        models: names of the models called.
        wall_s: seconds from the first start of a program to the last end of a call or program.
    """

    def __init__(self) -> None:
        self.programs = 0
        self.usage = Usage()
        self.models: list[str] = []
        self._lock = threading.Lock()
        self._start: float | None = None
        self._end: float | None = None

    @property
    def calls(self) -> int:
        """Calls that have ended."""
        return self.usage.calls

    @property
    def wall_s(self) -> float:
        """Seconds from the first start of a program to the last end of a call or program."""
        if self._start is None or self._end is None:
            return 0.0
        return self._end - self._start

    def program_started(self, model: str) -> None:
        """Counts a program."""
        with self._lock:
            self.programs += 1
            self._end = time.perf_counter()
            if self._start is None:
                self._start = self._end
            if model not in self.models:
                self.models.append(model)

    def program_ended(self) -> None:
        """Notes the time at which a program's body ended."""
        self._end = time.perf_counter()

    def call_ended(self, usage: Usage) -> None:
        """Adds what a call cost."""
        with self._lock:
            self.usage.add(usage)
            self._end = time.perf_counter()


_lock = threading.Lock()
_logs: tuple[UsageLog, ...] = ()


def active_logs() -> tuple[UsageLog, ...]:
    """The logs that are on."""
    return _logs


@contextmanager
def record_usage() -> Iterator[UsageLog]:
    """Records every program of the process, in any thread, while the block runs."""
    global _logs  # noqa: PLW0603
    log = UsageLog()
    with _lock:
        _logs = (*_logs, log)
    try:
        yield log
    finally:
        with _lock:
            _logs = tuple(other for other in _logs if other is not log)
