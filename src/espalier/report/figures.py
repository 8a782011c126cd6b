"""Numbers as text."""

from __future__ import annotations

from pathlib import PurePath


def seconds(value_s: float | None) -> str:
    """A time: "340 µs", "12 ms", "1.24 s", "2 min 5 s"; a dash for None."""
    if value_s is None:
        return "–"
    value_s = max(0.0, value_s)
    if value_s < 0.000_9995:
        return f"{value_s * 1e6:.0f} µs"
    if value_s < 0.00995:
        return f"{value_s * 1e3:.1f} ms"
    if value_s < 0.9995:
        return f"{value_s * 1e3:.0f} ms"
    if value_s < 59.995:
        return f"{value_s:.2f} s"
    minutes, rest = divmod(round(value_s), 60)
    return f"{minutes} min {rest} s"


def counted(number: int, noun: str) -> str:
    """ "1 call", "1,200 calls"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def place(location: str | None) -> str:
    """A location's last part: "story.py:12"."""
    return "" if location is None else PurePath(location).name


def percent(part: int, whole: int) -> str:
    """A share: "62 %"; 0 of nothing."""
    return f"{100 * part / whole:.0f} %" if whole else "0 %"
