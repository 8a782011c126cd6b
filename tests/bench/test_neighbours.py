"""Processor time of others, from the system's tables."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bench.engine import neighbours
from bench.engine.neighbours import (
    NeighbourWatch,
    busy_seconds,
    others_share,
    process_seconds,
)

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")


@linux_only
def test_busy_time_leaves_idle_and_guests_out(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = tmp_path / "stat"
    stat.write_text(f"cpu  {ticks} 0 {ticks} 500 70 0 0 {ticks} 900 900\ncpu0 1 2 3\n")
    assert busy_seconds(stat) == pytest.approx(3)
    stat.write_text("intr 5\n")
    assert busy_seconds(stat) is None
    assert busy_seconds(tmp_path / "missing") is None


@pytest.mark.parametrize(
    ("busy", "own", "elapsed", "processors", "share"),
    [
        (4.0, 4.0, 2.0, 2, 0.0),  # all of it was the process
        (4.0, 2.0, 2.0, 2, 0.5),
        (1.0, 0.0, 2.0, 2, 0.25),  # the process slept
        (3.0, 1.0, 1.0, 8, 0.25),
        (0.99, 1.0, 1.0, 2, 0.0),  # a tick too many for the process
        (2.01, 0.0, 1.0, 2, 1.0),  # a tick too many for all
    ],
)
def test_share_of_others_is_what_the_process_did_not_take(
    busy: float, own: float, elapsed: float, processors: int, share: float
) -> None:
    assert others_share(busy, own, elapsed, processors) == pytest.approx(share)


@linux_only
def test_own_work_is_counted_as_own() -> None:
    before, used = process_seconds(os.getpid()), time.process_time()
    assert before is not None
    while time.process_time() - used < 0.2:
        pass
    after = process_seconds(os.getpid())
    assert after is not None
    assert after - before >= 0.15


@pytest.mark.parametrize("what", ["busy_seconds", "process_seconds"])
def test_watch_takes_differences_or_knows_nothing(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = {
        "busy_seconds": [100.0, 104.0],
        "process_seconds": [50.0, 51.0],
        "perf_counter": [0.0, 2.0],
    }

    def ticking(name: str) -> Callable[..., float | None]:
        return lambda *_: clocks[name].pop(0)

    def watched() -> float | None:
        with monkeypatch.context() as patched:
            for name in ("busy_seconds", "process_seconds"):
                patched.setattr(neighbours, name, ticking(name))
            patched.setattr(time, "perf_counter", ticking("perf_counter"))
            patched.setattr(os, "cpu_count", lambda: 2)
            return NeighbourWatch(1).share()

    assert watched() == pytest.approx(0.75)
    clocks = {name: [5.0, 7.0] for name in clocks}
    clocks[what] = [None, 7.0]  # type: ignore[list-item]
    assert watched() is None


def test_process_that_ended_has_no_time() -> None:
    assert process_seconds(2**30) is None
