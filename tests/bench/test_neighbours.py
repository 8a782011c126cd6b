"""Processor time of others, from the system's tables."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from bench.engine.neighbours import NeighbourWatch, busy_seconds, process_seconds

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


@linux_only
def test_own_work_is_no_neighbours_work() -> None:
    before, used = process_seconds(os.getpid()), time.process_time()
    assert before is not None
    while time.process_time() - used < 0.2:
        pass
    after = process_seconds(os.getpid())
    assert after is not None
    assert after - before >= 0.15
    watch = NeighbourWatch(os.getpid())
    share = watch.share()
    assert share is not None
    assert 0 <= share <= 1


def test_process_that_ended_has_no_time() -> None:
    assert process_seconds(2**30) is None
