"""What the language itself costs: CPU time per call on a backend that answers at once.

    python bench/lang/overhead.py

Microseconds of CPU time (all threads) per call: `run` is one program with one call after the other,
`fork` 100 forks of one state, `batch` def programs on 16 threads, `async` async programs.
`empty_run` is a program without a call.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.report import print_report

import espalier as sgl
from espalier import gen


@sgl.function
def one(s: sgl.ProgramState) -> None:
    s += "A:" + gen("a")
    _ = s["a"]


@sgl.function
def empty(s: sgl.ProgramState) -> None:
    s += "A:"


@sgl.function
def forking(s: sgl.ProgramState) -> None:
    forks = s.fork(100)
    forks += "A:" + gen("a")
    forks.join()


@sgl.function
async def waiting(s: sgl.ProgramState) -> None:
    s += "A:" + gen("a")
    await s.aget("a")


def cpu_us(work: Callable[[], object], num_calls: int, repeats: int = 5) -> float:
    """Least CPU time of a call over some repeats, in microseconds."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append((time.process_time() - start) / num_calls * 1e6)
    return round(min(times), 1)


def main() -> None:
    """Measures every kind of call and prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    sgl.set_default_backend(sgl.ScriptedBackend("hello world"))
    one()
    result = {
        "empty_run": cpu_us(lambda: [empty() for _ in range(500)], 500),
        "run": cpu_us(lambda: [one() for _ in range(500)], 500),
        "fork": cpu_us(forking, 100),
        "batch": cpu_us(lambda: one.run_batch([{}] * 500, num_threads=16), 500),
        "async": cpu_us(lambda: waiting.run_batch([{}] * 500), 500),
    }
    print_report(result, options.json)


if __name__ == "__main__":
    main()
