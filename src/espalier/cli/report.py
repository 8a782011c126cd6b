"""The report at the end of a run: what was asked of the model, and what sharing saved.

It must not know how the counts came about.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TextIO

from espalier.errors import UserInputError
from espalier.types import Usage


@dataclass(frozen=True, slots=True)
class Report:
    """Counts and times of everything that ran; the fields are the keys of the JSON form.

    Attributes:
        hit_rate: cached prompt tokens / prompt tokens, 0 to 1.
        ttft_ms: mean time from a call's start to its first token in milliseconds, or None.
        tokens_per_s: generated tokens / `wall_s`.
        wall_s: seconds from the start of the first program to the end of the last call; loading
            the model comes before and is not part of it.
        model: name of the model (", " between several), or None where nothing ran.
    """

    programs: int
    calls: int
    prompt_tokens: int
    cached_tokens: int
    forced_tokens: int
    computed_tokens: int
    generated_tokens: int
    hit_rate: float
    ttft_ms: float | None
    tokens_per_s: float
    wall_s: float
    model: str | None


def make_report(programs: int, usage: Usage, wall_s: float, models: list[str]) -> Report:
    """The report of programs that cost `usage` in `wall_s` seconds."""
    return Report(
        programs=programs,
        calls=usage.calls,
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
        forced_tokens=usage.forced_tokens,
        computed_tokens=usage.computed_tokens,
        generated_tokens=usage.generated_tokens,
        hit_rate=round(usage.hit_rate, 4),
        ttft_ms=None if usage.ttft_s is None else round(usage.ttft_s * 1e3, 2),
        tokens_per_s=round(usage.generated_tokens / wall_s, 2) if wall_s > 0 else 0.0,
        wall_s=round(wall_s, 4),
        model=", ".join(models) or None,
    )


def check_output_path(flag: str, path: Path | None) -> None:
    """Raises UserInputError, before anything runs, where a file could not be written."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UserInputError(f"{flag} {path} cannot be written: give a file in a folder that is.")


def write_report(report: Report, path: Path) -> None:
    """Writes the JSON form; raises UserInputError."""
    try:
        path.write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserInputError(f"--report {path} cannot be written: {error}.") from error


def print_report(report: Report, load_s: float | None, stream: TextIO | None = None) -> None:
    """Prints the report on standard error: a block of three lines, in colour on a terminal."""
    stream = stream if stream is not None else sys.stderr
    lines = report_lines(report, load_s)
    if not stream.isatty():
        print("\n".join(lines), file=stream, flush=True)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream)
    head, *rest = lines
    console.print(Text(head, style="bold"), soft_wrap=True)
    for line in rest:
        text = Text(line, style="dim")
        text.highlight_regex(r"[\d,.]+ cached \([^)]*\)", "bold not dim green")
        console.print(text, soft_wrap=True)


def report_lines(report: Report, load_s: float | None) -> list[str]:
    """The text of the report; `load_s` is the time that loading the model took, if it was."""
    if report.programs == 0 and report.calls == 0:
        return ["espalier: no program ran."]
    loaded = "" if load_s is None else f"; model ready in {load_s:.1f} s"
    first = "" if report.ttft_ms is None else f", first token after {report.ttft_ms:,.0f} ms"
    forced = f", {report.forced_tokens:,} of them forced" if report.forced_tokens else ""
    return [
        f"espalier: {_count(report.programs, 'program')}, {_count(report.calls, 'call')} in "
        f"{report.wall_s:.2f} s on {report.model}{loaded}",
        f"  prompt     {report.prompt_tokens:,} tokens: {report.cached_tokens:,} cached "
        f"({report.hit_rate:.1%}), {report.computed_tokens:,} computed",
        f"  generated  {report.generated_tokens:,} tokens{forced}, "
        f"{report.tokens_per_s:,.1f} tokens/s{first}",
    ]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
