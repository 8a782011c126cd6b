"""Where in the user's program a call was written."""

from __future__ import annotations

import sys
from typing import NamedTuple

_PACKAGE = __name__.split(".", 1)[0]
_INSIDE = f"{_PACKAGE}."


class SourceLine(NamedTuple):
    """A line of a file; prints as `file:line`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


# Modules that only run what they are given: beyond them lies no line of a user's program.
_RUNNERS = ("threading", "asyncio", "concurrent")


def is_own_module(name: str) -> bool:
    """True for the name of a module of Espalier itself."""
    return name == _PACKAGE or name.startswith(_INSIDE)


def call_site() -> SourceLine | None:
    """The nearest line of the stack that is not Espalier's own; None where there is none."""
    frame = sys._getframe(1)
    while frame.f_back is not None:
        if not is_own_module(frame.f_globals.get("__name__", "")):
            break
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").partition(".")[0] in _RUNNERS:
        return None
    return SourceLine(frame.f_code.co_filename, frame.f_lineno)
