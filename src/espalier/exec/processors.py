"""How many processors this process may keep busy.

Knows the process's affinity and the quotas of its control groups; what runs on them it must not
know.
"""

from __future__ import annotations

import os
from pathlib import Path

from espalier.exec.control_groups import ControlGroup, control_groups


def usable_processors(root: Path = Path("/")) -> int:
    """Threads that can compute at a time: the affinity's processors, within every quota; >= 1.

    A quota of 2.5 processors counts as 2. With a third thread the group would use up its time
    before each period ends, and then all of it stands still, the interpreter's threads too; what
    is left over is theirs. `root` is where /proc and /sys are mounted.
    """
    quotas = [_quota(group) for group in control_groups("cpu", root)]
    allowed = [int(quota) for quota in quotas if quota is not None]
    return max(1, min([_affinity_size(), *allowed]))


def _affinity_size() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota(group: ControlGroup) -> float | None:
    """Processors' worth of time that the group gets, or None without a limit."""
    if group.version == 2:
        fields = (group.read("cpu.max") or "").split()  # "max 100000", or "250000 100000"
    else:
        files = (group.read("cpu.cfs_quota_us"), group.read("cpu.cfs_period_us"))
        fields = [(text or "").strip() for text in files]  # -1 is no limit
    if len(fields) != 2 or not all(field.isdecimal() for field in fields):
        return None
    quota, period = (int(field) for field in fields)
    return quota / period if period else None
