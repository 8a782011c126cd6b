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
        busy, own = busy_seconds(), process_seconds(self._process_id)
        if None in (busy, own, self._busy, self._own):
            return None
        assert busy is not None
        assert own is not None
        assert self._busy is not None
        assert self._own is not None
        others = (busy - self._busy) - (own - self._own)
        whole = (time.perf_counter() - self._start) * (os.cpu_count() or 1)
        return min(1.0, max(0.0, others / whole))


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
