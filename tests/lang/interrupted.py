"""A script that runs one kind of program on a backend that never answers, to be interrupted.

    python interrupted.py KIND

Prints "waiting" once its calls wait, and when it has been interrupted what is left of them.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable

from espalier import ProgramState, ScriptedBackend, function, gen
from espalier.lang import loop

NUM_CALLS = 3


class Endless(ScriptedBackend):
    """Says when all calls are there."""

    def _draw_latency(self) -> float:
        if self._in_flight == NUM_CALLS - 1:
            threading.Timer(0.05, lambda: print("waiting", flush=True)).start()
        return 600.0


@function
def reads(s: ProgramState) -> None:
    forks = s.fork(NUM_CALLS)
    forks += "a" + gen("x")
    _ = forks[0]["x"]


@function
def joins(s: ProgramState) -> None:
    s.fork(NUM_CALLS).__iadd__("a" + gen("x")).join()


@function
def returns(s: ProgramState) -> None:
    s += "a"
    forks = s.fork(NUM_CALLS - 1)
    forks += gen("x")
    s += gen("x")


@function
def once(s: ProgramState) -> None:
    s += "a" + gen("x")
    _ = s["x"]


@function
async def waits(s: ProgramState) -> None:
    await s.fork(NUM_CALLS).__iadd__("a" + gen("x")).ajoin()


@function
async def once_async(s: ProgramState) -> None:
    s += "a" + gen("x")
    await s.aget("x")


ITEMS: list[dict[str, str]] = [{} for _ in range(NUM_CALLS)]
backend = Endless()
KINDS: dict[str, Callable[[], object]] = {
    "run": lambda: reads.run(backend=backend),
    "join": lambda: joins.run(backend=backend),
    "read": lambda: returns.run(backend=backend)["x"],
    "sync": lambda: returns.run(backend=backend).sync(),
    "use_thread": lambda: joins.run(backend=backend, use_thread=True),
    "iterator": lambda: list(returns.run(backend=backend, stream=True).text_iter()),
    "variable_iterator": lambda: list(returns.run(backend=backend, stream=True).text_iter("x")),
    "batch": lambda: once.run_batch(ITEMS, backend=backend),
    "generator": lambda: list(once.run_batch(ITEMS, backend=backend, generator_style=True)),
    "async_run": lambda: waits.run(backend=backend),
    "async_batch": lambda: once_async.run_batch(ITEMS, backend=backend),
    "arun": lambda: asyncio.run(waits.arun(backend=backend)),
    "arun_batch": lambda: asyncio.run(once_async.arun_batch(ITEMS, backend=backend)),
    "arun_def": lambda: asyncio.run(joins.arun(backend=backend)),
}


def num_left() -> int:
    """Calls that are still at work, once they have had time to go."""
    deadline = time.monotonic() + 10

    async def tasks() -> int:
        return len(asyncio.all_tasks()) - 1

    while time.monotonic() < deadline:
        future = asyncio.run_coroutine_threadsafe(tasks(), loop.event_loop())
        if backend._in_flight == 0 and future.result(10) == 0:
            break
        time.sleep(0.01)
    return backend._in_flight


if __name__ == "__main__":
    try:
        KINDS[sys.argv[1]]()
    except KeyboardInterrupt:
        print(f"interrupted, {num_left()} calls left", flush=True)
