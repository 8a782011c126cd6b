"""An engine's resident memory with the real model: weights once, the pool, and little else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_MIB = 1 << 20
_RUN = """
import json, sys
from espalier.runtime import Engine

def resident(name):
    for line in open("/proc/self/status"):
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024

engine = Engine(sys.argv[1], max_total_tokens=int(sys.argv[2]))
engine.generate("Once upon a time", {"max_new_tokens": 40, "temperature": 0})
held = engine._engine._core.executor.memory_bytes()
file_bytes = resident("RssFile")
print(json.dumps({"now": resident("VmRSS"), "most": resident("VmHWM"), "file": file_bytes, **held}))
engine.shutdown()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("max_total_tokens", [4096, 16_384])
def test_resident_memory_is_weights_and_pool(smollm2_path: Path, max_total_tokens: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, str(smollm2_path), str(max_total_tokens)],
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = json.loads(ended.stdout)
    allowed = 1.3 * (found["weights"] + found["kv_pool"]) + 120 * _MIB
    assert found["most"] <= allowed, "also while it starts"
    assert found["now"] <= allowed
    # The file's pages went when its weights were packed; libraries are what is left.
    assert found["file"] < smollm2_path.stat().st_size
