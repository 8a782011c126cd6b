"""How much memory this process may still take, and a clear error where that is too little.

Knows /proc and the memory files of control groups of Linux; elsewhere nothing is known and nothing
is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from espalier.errors import CapacityError
from espalier.exec.control_groups import ControlGroup, control_groups, read_text

MIB = 1 << 20


def available_bytes(root: Path = Path("/")) -> int | None:
    """Bytes that can still be taken, or None where the system does not tell.

    The least of the system's free memory (page cache that can be dropped counts as free) and what
    each control group around this process leaves. `root` is where /proc and /sys are mounted.
    """
    known = [value for value in (_system_bytes(root), *_group_bytes(root)) if value is not None]
    return max(0, min(known)) if known else None


def require_memory(needed: Mapping[str, int], advice: str, *, available: int | None = None) -> None:
    """Raises CapacityError where the sum of `needed` (bytes by purpose) is not available.

    `advice` ends the message; it says what to lower. `available` is asked of the system unless
    given.
    """
    if available is None:
        available = available_bytes()
    total = sum(needed.values())
    if available is None or total <= available:
        return
    parts = ", ".join(f"{name} {_in_mib(size)}" for name, size in needed.items())
    raise CapacityError(
        f"{_in_mib(total)} of memory are needed ({parts}), {_in_mib(available)} are available. "
        f"{advice}"
    )


def _in_mib(size: int) -> str:
    return f"{-(-size // MIB):,} MiB"


def _system_bytes(root: Path) -> int | None:
    for line in (read_text(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _group_bytes(root: Path) -> Iterator[int | None]:
    """What each memory control group around this process leaves, from the innermost out."""
    for group in control_groups("memory", root):
        if group.version == 2:
            yield _left_in(group, "memory.max", "memory.current")
        else:
            yield _left_in(group, "memory.limit_in_bytes", "memory.usage_in_bytes")


def _left_in(group: ControlGroup, limit_name: str, usage_name: str) -> int | None:
    limit, usage = group.read(limit_name), group.read(usage_name)
    if limit is None or usage is None or not limit.strip().isdecimal():
        return None
    droppable = 0
    for line in (group.read("memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            droppable = max(droppable, int(value))
    return int(limit) - int(usage) + droppable
