"""1,000 programs of 8 forks at once, in a process of their own: memory and threads are bounded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", ["async", "def"])
def test_1000_programs_of_8_forks_need_little_memory_and_no_threads(kind: str) -> None:
    bench = [sys.executable, "bench/lang/many_programs.py", "--kind", kind]
    done = subprocess.run(bench, cwd=ROOT, capture_output=True, text=True, timeout=100, check=True)
    found = json.loads(done.stdout)
    assert found["calls"] == 8000
    assert found["memory_mb"] < 400
    assert found["threads"] <= 1
    assert found["start_s"] < 60  # the bench says how long it is; here the machine may be busy
