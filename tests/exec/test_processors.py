"""Processors that a process may use, read from made-up system files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from espalier.exec.processors import usable_processors


def system(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture(autouse=True)
def _eight_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def test_affinity_counts_without_groups(tmp_path: Path) -> None:
    assert usable_processors(tmp_path) == 8


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        ("max 100000", 8),
        ("200000 100000", 2),
        ("250000 100000", 2),  # what is left over is for the interpreter
        ("399999 100000", 3),
        ("50000 100000", 1),
        ("9000000 100000", 8),
        ("200000 0", 8),
        ("rubbish", 8),
        ("", 8),
    ],
)
def test_quota_of_version_two(tmp_path: Path, quota: str, expected: int) -> None:
    files = {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": quota + "\n"}
    assert usable_processors(system(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("inner", "outer", "expected"), [("max", "300000", 3), ("300000", "max", 3), ("4", "1", 1)]
)
def test_the_least_of_nested_groups_counts(
    tmp_path: Path, inner: str, outer: str, expected: int
) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b/c\n",
        "sys/fs/cgroup/a/b/c/cpu.max": f"{inner} 100000",
        "sys/fs/cgroup/a/cpu.max": f"{outer} 100000",
    }
    assert usable_processors(system(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("3:cpu:/job", "cpu/job"),
        ("3:cpu,cpuacct:/job", "cpu,cpuacct/job"),
        ("3:cpu,cpuacct:/job", "cpu/job"),
        ("3:cpu:/of/the/host", "cpu"),  # a container sees its own group at the top
    ],
)
@pytest.mark.parametrize(("quota", "expected"), [("-1", 8), ("350000", 3), ("20000", 1)])
def test_quota_of_version_one(
    tmp_path: Path, line: str, folder: str, quota: str, expected: int
) -> None:
    files = {
        "proc/self/cgroup": f"4:memory:/x\n{line}\n0::/\n",
        f"sys/fs/cgroup/{folder}/cpu.cfs_quota_us": quota + "\n",
        f"sys/fs/cgroup/{folder}/cpu.cfs_period_us": "100000\n",
    }
    assert usable_processors(system(tmp_path, files)) == expected


def test_other_controllers_say_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "3:cpuset:/job\n4:cpuacct:/job\n",
        "sys/fs/cgroup/cpuset/job/cpu.cfs_quota_us": "100000",
        "sys/fs/cgroup/cpuset/job/cpu.cfs_period_us": "100000",
    }
    assert usable_processors(system(tmp_path, files)) == 8


def test_this_machine_has_processors() -> None:
    assert usable_processors() >= 1
