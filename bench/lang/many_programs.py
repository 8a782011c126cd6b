"""1,000 programs of 8 forks at once: memory above what the process had, threads, time to start.

    python bench/lang/many_programs.py

The backend holds every call until all that can be there are there, so all programs are at work at
once. `start_s` is the time until each program has submitted its forks and the backend is full (it
gets 1,024 calls at a time, the rest wait in the language); `memory_mb` is the most resident memory
above that before the first program, `threads` likewise. Each kind runs in a process of its own:

    async   async programs, awaited as one batch
    def     def programs run from one thread, which return while their forks are at work
    batch   def programs as one batch: their bodies wait for their forks on 96 threads

`batch` never has more than 96 bodies begun: it shows that the others wait without a thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.report import print_report

import espalier as sgl
from espalier import gen
from espalier.backends.base import GenerateCall, GenerateResult, OnDelta

MAX_MB, MAX_START_S = 400.0, 2.0
NUM_FORKS = 8
KINDS = ("async", "def", "batch")
NUM_HELD = 1024  # calls that the language gives a backend at once
NUM_THREADS = 96


class Holding(sgl.ScriptedBackend):
    """Holds its calls until `num_wanted` are there, and notes when that was, and the memory."""

    def __init__(self, num_wanted: int) -> None:
        super().__init__("hello world")
        self.num_wanted = num_wanted
        self.num_waiting = 0
        self.full = asyncio.Event()
        self.filled_at: float | None = None
        self.ready = threading.Event()  # that all programs have submitted what they will

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        """Waits for the others, then answers."""
        self.num_waiting += 1
        if self.num_waiting == self.num_wanted:
            self.filled_at = time.perf_counter()
            while not self.ready.is_set():
                await asyncio.sleep(0.001)
            self.full.set()
        await self.full.wait()
        return await super().generate(call, on_delta)


def resident_mb(field: str = "VmRSS") -> float:
    """Resident memory of this process (VmHWM: the most it ever had), in MB."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("this bench reads memory from /proc, which is not there")


def measured(kind: str, num_programs: int) -> dict[str, float]:
    """Runs one kind in this process."""
    num_begun = min(num_programs, NUM_THREADS) if kind == "batch" else num_programs
    backend = Holding(min(NUM_HELD, num_begun * NUM_FORKS))
    num_submitted, submitted_at = 0, 0.0

    def note() -> None:
        nonlocal num_submitted, submitted_at
        with lock:
            num_submitted += 1
            if num_submitted == num_begun:
                submitted_at = time.perf_counter()
                backend.ready.set()

    @sgl.function
    def program(s: sgl.ProgramState, number: int) -> Any:
        s += f"question {number} "
        forks = s.fork(NUM_FORKS)
        forks += lambda index: f"branch {index}" + gen("x", max_tokens=16)
        note()
        if kind == "batch":
            forks.join()
        return forks

    @sgl.function
    async def program_async(s: sgl.ProgramState, number: int) -> None:
        s += f"question {number} "
        forks = s.fork(NUM_FORKS)
        forks += lambda index: f"branch {index}" + gen("x", max_tokens=16)
        note()
        await forks.ajoin()

    def run_all() -> None:
        states = [program.run(backend=backend, **item) for item in items]
        for state in states:
            state.ret_value.join()

    lock = threading.Lock()
    items = [{"number": number} for number in range(num_programs)]
    program.run(number=-1, backend=sgl.ScriptedBackend()).sync()  # starts the loop
    num_submitted = 0
    backend.ready.clear()
    work: dict[str, Callable[[], object]] = {
        "async": lambda: asyncio.run(program_async.arun_batch(items, backend=backend)),
        "def": run_all,
        "batch": lambda: program.run_batch(items, backend=backend, num_threads=NUM_THREADS),
    }
    memory_mb, num_threads = resident_mb(), threading.active_count()
    start = time.perf_counter()
    most_threads = Watch()
    with most_threads:
        work[kind]()
    assert backend.filled_at is not None
    return {
        "programs": num_programs,
        "calls": sum(call.kind == "generate" for call in backend.calls),
        "start_s": round(max(backend.filled_at, submitted_at) - start, 3),
        "whole_s": round(time.perf_counter() - start, 3),
        "memory_mb": round(resident_mb("VmHWM") - memory_mb, 1),
        "threads": most_threads.most - num_threads - 1,  # without the watch itself
    }


class Watch:
    """Notes the most threads that there are while a block runs."""

    def __init__(self) -> None:
        self.most = threading.active_count()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(0.02):
            self.most = max(self.most, threading.active_count())


def in_a_process(kind: str, num_programs: int) -> dict[str, float]:
    """Runs one kind in a new process."""
    command = [sys.executable, __file__, "--kind", kind, "--programs", str(num_programs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{kind} failed: {done.stderr}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def main() -> None:
    """Measures every kind and prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--kind", choices=KINDS, help="only this one, here, as a JSON object")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.kind:
        print(json.dumps(measured(options.kind, options.programs)))
        return
    result = {kind: in_a_process(kind, options.programs) for kind in KINDS}
    targets = {"memory_mb": MAX_MB, "start_s": MAX_START_S}
    print_report({**result, "targets": targets}, options.json)


if __name__ == "__main__":
    main()
