"""^C ends every kind of program: its calls are cancelled and nothing hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lang.interrupted import KINDS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_cancels_what_was_submitted(kind: str) -> None:
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.lang.interrupted", kind],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert out == "interrupted, 0 calls left\n"
    assert err == ""
    assert process.returncode == 0
