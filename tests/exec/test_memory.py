"""Memory that is left, read from made-up system files."""

from __future__ import annotations

from pathlib import Path

import pytest

from espalier.errors import CapacityError
from espalier.exec.memory import MIB, available_bytes, require_memory

GIB = 1 << 30


def system(root: Path, files: dict[str, str]) -> Path:
    files = {"proc/meminfo": f"MemTotal: 9 kB\nMemAvailable: {8 * MIB} kB\n", **files}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_free_memory_counts_without_groups(tmp_path: Path) -> None:
    assert available_bytes(system(tmp_path, {})) == 8 * GIB


def test_nothing_is_known_without_proc(tmp_path: Path) -> None:
    assert available_bytes(tmp_path) is None
    require_memory({"pool": 0}, "Lower it.")


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": f"{2 * GIB}\n", "memory.current": f"{GIB}\n"}, GIB),
        ({"memory.max": "max\n", "memory.current": f"{GIB}\n"}, 8 * GIB),
        (
            {
                "memory.max": f"{2 * GIB}",
                "memory.current": f"{GIB}",
                "memory.stat": f"anon 5\ninactive_file {GIB // 2}\n",
            },
            GIB + GIB // 2,
        ),
        ({"memory.max": f"{GIB}", "memory.current": f"{2 * GIB}"}, 0),
    ],
)
def test_control_group_limits(tmp_path: Path, files: dict[str, str], left: int) -> None:
    group = {f"sys/fs/cgroup/a/b/{name}": text for name, text in files.items()}
    assert available_bytes(system(tmp_path, {"proc/self/cgroup": "0::/a/b\n", **group})) == left


def test_outer_group_limits_too(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/memory.max": "max",
        "sys/fs/cgroup/a/b/memory.current": "5",
        "sys/fs/cgroup/a/memory.max": f"{3 * GIB}",
        "sys/fs/cgroup/a/memory.current": "0",
    }
    assert available_bytes(system(tmp_path, files)) == 3 * GIB


def test_version_one_group_limits(tmp_path: Path) -> None:
    folder = "sys/fs/cgroup/memory/job"
    files = {
        "proc/self/cgroup": "5:cpu:/x\n4:memory:/job\n",
        f"{folder}/memory.limit_in_bytes": f"{4 * GIB}",
        f"{folder}/memory.usage_in_bytes": f"{3 * GIB}",
        f"{folder}/memory.stat": f"total_inactive_file {GIB}\n",
    }
    assert available_bytes(system(tmp_path, files)) == 2 * GIB


def test_require_memory_names_parts_and_advice() -> None:
    require_memory({"pool": 5 * MIB}, "Lower it.", available=5 * MIB)
    with pytest.raises(
        CapacityError,
        match=r"7 MiB of memory are needed \(pool 5 MiB, weights 2 MiB\), 6 MiB .* Lower it\.",
    ):
        require_memory({"pool": 5 * MIB, "weights": 2 * MIB}, "Lower it.", available=6 * MIB)


def test_this_machine_has_memory() -> None:
    left = available_bytes()
    assert left is None or left > MIB
