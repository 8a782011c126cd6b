"""Holds an engine's steps, so that what a test sees never depends on which thread is faster."""

from __future__ import annotations

import asyncio
import threading

from espalier.engine.engine import EngineCore
from espalier.exec.executor import Float32Array, StepBatch


class Gate:
    """Lets `num_free` steps through, then holds the engine's thread until it is opened.

    Attributes:
        entered: set where a step is held.
        opened: to set to let all further steps through.
    """

    def __init__(self, core: EngineCore, num_free: int = 0) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        executor, run = core.executor, core.executor.run

        def gated(batch: StepBatch) -> Float32Array:
            nonlocal num_free
            num_free -= 1
            if num_free < 0:
                self.entered.set()
                assert self.opened.wait(10)
            return run(batch)

        executor.run = gated  # type: ignore[method-assign]


def keep_pace_with(core: EngineCore, loop: asyncio.AbstractEventLoop) -> None:
    """Makes every step wait until readers in `loop` have taken what the steps before it gave.

    Without it a fast model ends before a reader's first turn, and the reader sees the end alone.
    """
    executor, run = core.executor, core.executor.run

    def paced(batch: StepBatch) -> Float32Array:
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
        return run(batch)

    executor.run = paced  # type: ignore[method-assign]
