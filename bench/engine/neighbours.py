"""How much of the machine's processors went to others while something was measured (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

_IDLE_COLUMNS = (3, 4)  # idle and iowait, of the columns after "cpu"
_COUNTED_COLUMNS = 8  # guests are part of the columns before them


class NeighbourWatch:
    """Processor time between `__init__` and `share`, less that of one process.

    The process may have threads; it must have no children that work.
    """

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id
        self._start = time.perf_counter()
        self._busy = busy_seconds()
        self._own = process_seconds(process_id)

    def share(self) -> float | None:
        """Processors' time that others took, 0 to 1; None where the system does not tell.

        The clock of the system ticks a hundred times a second, so short times give rough shares.
        """
        busy = _difference(self._busy, busy_seconds())
        own = _difference(self._own, process_seconds(self._process_id))
        if busy is None or own is None:
            return None
        return others_share(busy, own, time.perf_counter() - self._start, os.cpu_count() or 1)


def others_share(busy_s: float, own_s: float, elapsed_s: float, num_processors: int) -> float:
    """Share of all processors' time that went to others than one process, 0 to 1.

    `busy_s` and `own_s` are processor time of all and of that process in `elapsed_s` of the clock.
    They come from clocks that tick at different times, so the difference may fall outside.
    """
    return min(1.0, max(0.0, (busy_s - own_s) / (elapsed_s * num_processors)))


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else second - first


def busy_seconds(stat: Path = Path("/proc/stat")) -> float | None:
    """Time that all processors have worked since the system started."""
    try:
        columns = stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        ticks = [int(column) for column in columns[:_COUNTED_COLUMNS]]
    except (OSError, ValueError):
        return None
    if len(ticks) < _COUNTED_COLUMNS:
        return None
    return (sum(ticks) - sum(ticks[column] for column in _IDLE_COLUMNS)) / _ticks_per_second()


def process_seconds(process_id: int) -> float | None:
    """Processor time of a process, all its threads together."""
    try:
        text = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _ticks_per_second()


def _ticks_per_second() -> int:
    return os.sysconf("SC_CLK_TCK")
