"""What surrounds a command that runs programs: the default backend before, the report after."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from espalier.cli.engine_choice import LazyEngine
from espalier.cli.report import make_report, print_report, write_report


@dataclass(slots=True)
class Clock:
    """The time that the report speaks of: `wall_s` where a command counts it by itself."""

    wall_s: float | None = None

    def add(self, seconds: float) -> None:
        """Counts the time of one answer; what passes between answers is then left out."""
        self.wall_s = (self.wall_s or 0.0) + seconds


@contextmanager
def reporting(
    engine: LazyEngine, report_path: Path | None, trace_path: Path | None = None
) -> Iterator[Clock]:
    """Makes `engine` the default backend; prints and writes the report however the block ends.

    `trace_path` gets the drawing of everything that ran.
    """
    from espalier.lang.config import set_default_backend
    from espalier.lang.usage import record_usage

    set_default_backend(engine)
    clock = Clock()
    try:
        with record_usage() as log, _drawing(trace_path):
            try:
                yield clock
            finally:
                sys.stdout.flush()
                wall_s = log.wall_s if clock.wall_s is None else clock.wall_s
                report = make_report(log.programs, log.usage, wall_s, log.models)
                if log.programs or engine.failure is None:
                    print_report(report, engine.load_s)
                if report_path is not None:
                    write_report(report, report_path)
    finally:
        set_default_backend(None)
        engine.shutdown()


@contextmanager
def _drawing(path: Path | None) -> Iterator[None]:
    if path is None:
        yield
        return
    from espalier.lang.recording import record_run

    with record_run() as view:
        try:
            yield
        finally:
            view.save(path)
