"""How a bench prints what it measured: for people, or as one JSON object."""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def print_report(result: Mapping[str, Any], is_json: bool) -> None:
    """Prints names and values, those of a group below its name; commit and processor at the end."""
    whole = {**result, "commit": commit_id(), "cpu": cpu_name()}
    print(json.dumps(whole) if is_json else "\n".join(text_lines(whole)), flush=True)


def text_lines(result: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A line for each value; values of one group stand below each other."""
    width = max((len(name) for name, value in result.items() if not _is_group(value)), default=0)
    for name, value in result.items():
        if _is_group(value):
            yield f"{indent}{name}:"
            yield from text_lines(value, indent + "  ")
        else:
            yield f"{indent}{name:{width}}  {value}"


def _is_group(value: object) -> bool:
    return isinstance(value, Mapping)


def cpu_name() -> str:
    """Name of the processor and the number of its cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} x {len(names) or '?'}"


def commit_id() -> str:
    """The checkout's commit, with a + where files differ from it."""
    folder = Path(__file__).parent
    describe = ["git", "describe", "--always", "--dirty=+", "--abbrev=12"]
    try:
        done = subprocess.run(describe, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
