"""The event loop, in one daemon thread, that carries out the operations of all programs.

It must not know what runs on it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from espalier.errors import ProgramError

T = TypeVar("T")
THREAD_NAME = "espalier-loop"
_STOP_TIMEOUT_S = 2.0


class _LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.process_id = os.getpid()
        self.thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def stop(self) -> None:
        if self.process_id != os.getpid() or not self.thread.is_alive():
            return
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._cancel_all)
        self.thread.join(_STOP_TIMEOUT_S)

    def _cancel_all(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        self.loop.create_task(self._stop_after(tasks))

    async def _stop_after(self, tasks: set[asyncio.Task[Any]]) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=_STOP_TIMEOUT_S / 2)
        self.loop.stop()


_lock = threading.Lock()
_current: _LoopThread | None = None


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop of programs; starts it on the first call (and again in a forked process)."""
    global _current  # noqa: PLW0603
    current = _current
    if current is not None and current.process_id == os.getpid():
        return current.loop
    with _lock:
        if _current is None or _current.process_id != os.getpid():
            _current = _LoopThread()
            atexit.register(_current.stop)
        return _current.loop


def on_loop_thread() -> bool:
    """True where the caller runs on the loop of programs."""
    current = _current
    return current is not None and threading.get_ident() == current.thread.ident


def call_soon(callback: Any, *args: Any) -> None:
    """Runs a callback on the loop, from any thread."""
    loop = event_loop()
    if on_loop_thread():
        loop.call_soon(callback, *args)
    else:
        loop.call_soon_threadsafe(callback, *args)


_spawned: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks weakly


def spawn(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Runs a coroutine on the loop, from any thread, and forgets it."""
    call_soon(_spawn, coroutine)


def _spawn(coroutine: Coroutine[Any, Any, Any]) -> None:
    task = event_loop().create_task(coroutine)
    _spawned.add(task)
    task.add_done_callback(_spawned.discard)


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on the loop and waits for it; cancels it where the wait is interrupted."""
    if on_loop_thread():
        coroutine.close()
        raise ProgramError("blocking the event loop of programs for work of its own never ends.")
    future = asyncio.run_coroutine_threadsafe(coroutine, event_loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
