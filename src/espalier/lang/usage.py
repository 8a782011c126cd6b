"""Counts of what programs cost: per state with its forks, and for everything in a process.

It must not know how calls are made.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

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

    def adopt(self, node: UsageNode) -> None:
        """Counts a program that was run inside this one's body as part of it."""
        self.children.append(node)

    def total(self) -> Usage:
        """The sum over this node and all below."""
        return total_of([self])


def total_of(nodes: Iterable[UsageNode]) -> Usage:
    """The sum over nodes and all below them, each counted once."""
    total = Usage()
    stack, seen = list(nodes), set[UsageNode]()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            total.add(node.usage)
            stack.extend(node.children)
    return total


class Counted(Protocol):
    """What `usage_of` needs of a state."""

    @property
    def stream(self) -> HasNode:
        """The state's stream."""
        ...


class HasNode(Protocol):
    """Something whose calls are counted in a node."""

    @property
    def node(self) -> UsageNode:
        """The node."""
        ...


def usage_of(states: Iterable[Counted]) -> Usage:
    """The sum over states with their forks and nested programs, such as those of a batch.

    Does not wait: it counts the calls that have ended. A state that is part of another one given
    is counted once.
    """
    return total_of(state.stream.node for state in states)


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
