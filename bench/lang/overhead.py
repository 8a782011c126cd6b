"""What the language itself costs: CPU time per generation on a backend that answers at once.

    python bench/lang/overhead.py

Microseconds of CPU time (of all threads of the process) per generation, the least of some repeats,
less what a call of the scripted backend takes by itself (`backend`). Each kind: 1,000 programs.

    run          def programs of one generation, one program after the other
    turns        the same with 4 generations, each read before the next
    fork         def programs of 8 forks, joined
    batch        as `run`, in one batch on 16 threads; `batch_turns`, `batch_fork` likewise
    async        async programs, as `run`, in one batch; `async_turns`, `async_fork` likewise

`empty` is a program without a generation, per program. The target is 150 for each kind.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.report import print_report

import espalier as sgl
from espalier import gen
from espalier.backends.base import GenerateCall
from espalier.types import SamplingParams, TextSegment

TARGET_US = 150.0
NUM_TURNS = 4
NUM_FORKS = 8


@sgl.function
def one(s: sgl.ProgramState) -> None:
    s += "A:" + gen("a")
    _ = s["a"]


@sgl.function
def empty(s: sgl.ProgramState) -> None:
    s += "A:"


@sgl.function
def turns(s: sgl.ProgramState) -> None:
    for _ in range(NUM_TURNS):
        s += "A:" + gen("a")
        _ = s["a"]


@sgl.function
def forking(s: sgl.ProgramState) -> None:
    forks = s.fork(NUM_FORKS)
    forks += "A:" + gen("a")
    forks.join()


@sgl.function
async def one_async(s: sgl.ProgramState) -> None:
    s += "A:" + gen("a")
    await s.aget("a")


@sgl.function
async def turns_async(s: sgl.ProgramState) -> None:
    for _ in range(NUM_TURNS):
        s += "A:" + gen("a")
        await s.aget("a")


@sgl.function
async def forking_async(s: sgl.ProgramState) -> None:
    forks = s.fork(NUM_FORKS)
    forks += "A:" + gen("a")
    await forks.ajoin()


def cpu_us(work: Callable[[], object], num_calls: int, repeats: int) -> float:
    """Least CPU time of a call over some repeats, in microseconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) / num_calls * 1e6)
    return min(times)


def backend_us(num_calls: int, repeats: int) -> float:
    """CPU time of one call of the scripted backend, without any language."""
    backend = sgl.ScriptedBackend("hello world")
    call = GenerateCall((TextSegment("A:", allow_special=True),), SamplingParams())

    async def calls() -> None:
        for _ in range(num_calls):
            await backend.generate(call)

    return cpu_us(lambda: asyncio.run(calls()), num_calls, repeats)


def measured(num_programs: int, repeats: int) -> dict[str, float]:
    """CPU time per generation of each kind, the backend's own subtracted."""
    sgl.set_default_backend(sgl.ScriptedBackend("hello world"))
    items: list[dict[str, str]] = [{}] * num_programs
    kinds: dict[str, tuple[Callable[[], object], int]] = {
        "run": (lambda: [one() for _ in items], 1),
        "turns": (lambda: [turns() for _ in items], NUM_TURNS),
        "fork": (lambda: [forking() for _ in items], NUM_FORKS),
        "batch": (lambda: one.run_batch(items, num_threads=16), 1),
        "batch_turns": (lambda: turns.run_batch(items, num_threads=16), NUM_TURNS),
        "batch_fork": (lambda: forking.run_batch(items, num_threads=16), NUM_FORKS),
        "async": (lambda: one_async.run_batch(items), 1),
        "async_turns": (lambda: turns_async.run_batch(items), NUM_TURNS),
        "async_fork": (lambda: forking_async.run_batch(items), NUM_FORKS),
    }
    one()
    own = backend_us(num_programs, repeats)
    result = {"backend": own}
    result["empty"] = cpu_us(lambda: [empty() for _ in items], num_programs, repeats)
    for name, (work, num_calls) in kinds.items():
        result[name] = cpu_us(work, num_programs * num_calls, repeats) - own
    return {name: round(value, 1) for name, value in result.items()}


def main() -> None:
    """Measures every kind and prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000, help="programs of each kind")
    parser.add_argument("--repeats", type=int, default=5, help="repeats, of which the least counts")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    result = measured(options.programs, options.repeats)
    worst = max(value for name, value in result.items() if name not in ("backend", "empty"))
    print_report({**result, "worst": worst, "target": TARGET_US}, options.json)


if __name__ == "__main__":
    main()
