"""Text that grows piece by piece, for any number of readers in threads and event loops.

Written on the loop's thread. It must not know what writes it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from espalier.lang.promise import ErrorSource, release

Meta = Mapping[str, Any]
Piece = tuple[str, Meta | None]


class Feed:
    """Pieces of text in order, then an end or an error. Reading begins at the first piece."""

    __slots__ = ("_closed", "_error", "_lock", "_pieces", "_wakers", "num_characters")

    def __init__(self) -> None:
        self.num_characters = 0
        self._pieces: list[Piece] = []
        self._closed = False
        self._error: ErrorSource | None = None
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []

    def push(self, text: str, meta: Meta | None = None) -> None:
        """Appends a piece; nothing after the end."""
        if text or meta is not None:
            with self._lock:
                if self._closed:
                    return
                self._pieces.append((text, meta))
                self.num_characters += len(text)
            self._wake()

    def close(self, error: ErrorSource | None = None) -> None:
        """Ends the feed, with an error that each reader raises, or without."""
        with self._lock:
            if self._closed:
                return
            self._closed, self._error = True, error
        self._wake()

    def text(self) -> str:
        """What has been pushed so far."""
        return "".join(text for text, _ in self._pieces)

    def _wake(self) -> None:
        with self._lock:
            wakers, self._wakers = self._wakers, []
        for waker in wakers:
            waker()

    def _take(self, start: int, waker: Callable[[], None]) -> tuple[list[Piece], bool]:
        """Pieces from `start` on and whether the feed has ended; else leaves the waker."""
        with self._lock:
            pieces = self._pieces[start:]
            if not pieces and not self._closed:
                self._wakers.append(waker)
            return pieces, self._closed

    def read(self) -> Iterator[Piece]:
        """Blocks for pieces; what has come together is one piece."""
        index = 0
        while True:
            gate = threading.Lock()
            gate.acquire()
            pieces, closed = self._take(index, gate.release)
            if pieces:
                index += len(pieces)
                yield merged(pieces)
            elif closed:
                return self._finish()
            else:
                gate.acquire()

    async def read_async(self) -> AsyncIterator[Piece]:
        """Awaits pieces on the running loop, whichever it is."""
        loop = asyncio.get_running_loop()
        index = 0
        while True:
            future: asyncio.Future[None] = loop.create_future()
            pieces, closed = self._take(index, lambda f=future: _wake_on(loop, f))  # type: ignore[misc]
            if pieces:
                index += len(pieces)
                yield merged(pieces)
            elif closed:
                self._finish()
                return
            else:
                await future

    def _finish(self) -> None:
        if self._error is not None:
            raise self._error()


def _wake_on(loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(release, future)


def merged(pieces: list[Piece]) -> Piece:
    """The texts joined, with the last meta: a backend's meta is cumulative."""
    metas = [meta for _, meta in pieces if meta is not None]
    return "".join(text for text, _ in pieces), metas[-1] if metas else None
