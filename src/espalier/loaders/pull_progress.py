"""What a pull tells its user: one line at the start, and a bar of bytes on a terminal.

It writes to standard error only, and knows nothing of what is pulled.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class PullProgress(Protocol):
    """Told of the course of a pull; called from the thread that pulls."""

    def note(self, text: str) -> None:
        """Tells the user one line: what starts, or what is waited for."""
        ...

    def advance(self, text: str, done_bytes: int, total_bytes: int) -> None:
        """`done_bytes` of `total_bytes` are here; `text` says of what."""
        ...

    def end(self) -> None:
        """No more news, be it done or failed. May be called twice."""
        ...


class SilentProgress:
    """Tells nothing."""

    def note(self, text: str) -> None:
        """Does nothing."""

    def advance(self, text: str, done_bytes: int, total_bytes: int) -> None:
        """Does nothing."""

    def end(self) -> None:
        """Does nothing."""


class StderrProgress:
    """Notes on standard error; a bar as well where that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def note(self, text: str) -> None:
        """Prints the line above the bar."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self._stream, flush=True)

    def advance(self, text: str, done_bytes: int, total_bytes: int) -> None:
        """Moves the bar, which appears with the first call; nothing without a terminal."""
        if not self._stream.isatty():
            return
        if self._bar is None or self._task is None:
            self._bar = _byte_bar(self._stream)
            self._task = self._bar.add_task(text, total=total_bytes)
            self._bar.start()
        self._bar.update(self._task, completed=done_bytes, total=total_bytes, description=text)

    def end(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
        self._bar = self._task = None


def _byte_bar(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(file=stream),
        transient=True,
    )
