"""Timeouts: what a user may give, and the clock that ends a program which takes too long.

It must not know what a program does.
"""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from typing import Any, Protocol

from espalier.errors import ProgramTimeoutError, UserInputError, shown
from espalier.lang import loop

MAX_TIMEOUT_S = 10**8  # about three years; event loops take no more


def seconds(value: Any, name: str = "timeout") -> float | None:
    """A timeout as it was given, None for none; raises UserInputError."""
    if value is None:
        return None
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or math.isnan(value) or value <= 0:
        raise UserInputError(
            f"{name} is {shown(value)}; seconds above 0, or None for no timeout, are allowed."
        )
    return float(min(value, MAX_TIMEOUT_S))


def timed_out(what: str, timeout_s: float, detail: str = "") -> ProgramTimeoutError:
    """The error of something that did not end in time."""
    return ProgramTimeoutError(f"{what} did not end within its timeout of {timeout_s:g} s{detail}.")


class Limited(Protocol):
    """What a clock needs of a program."""

    def has_ended(self) -> bool:
        """True where the body has returned and nothing is at work."""
        ...

    def time_out(self, what: str, timeout_s: float) -> None:
        """Ends the program with a ProgramTimeoutError."""
        ...


class Clock:
    """Ends a program that is still at work when its time is over. It keeps no program alive."""

    __slots__ = ("_deadline", "_handle", "_program", "_timeout_s", "_what")

    def __init__(self, program: Limited, what: str, timeout_s: float) -> None:
        self._program = weakref.ref(program)
        self._what, self._timeout_s = what, timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._handle: asyncio.TimerHandle | None = None
        loop.call_soon(self._start)

    def _start(self) -> None:
        # Streams that the program has sent before are behind this in the loop's queue: whether it
        # has ended cannot be said yet.
        left_s = max(0.0, self._deadline - time.monotonic())
        self._handle = asyncio.get_running_loop().call_later(left_s, self._ring)

    def _ring(self) -> None:
        program = self._program()
        if program is not None and not program.has_ended():
            program.time_out(self._what, self._timeout_s)

    def stop(self) -> None:
        """Forgets about the program; on the loop's thread."""
        if self._handle is not None:
            self._handle.cancel()
