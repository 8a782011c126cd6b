"""What surrounds a command that runs programs: the default backend before, the report after."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from espalier.cli.engine_choice import LazyEngine
from espalier.cli.report import make_report, print_report, write_report


@contextmanager
def reporting(engine: LazyEngine, report_path: Path | None) -> Iterator[None]:
    """Makes `engine` the default backend; prints and writes the report however the block ends."""
    from espalier.lang.config import set_default_backend
    from espalier.lang.usage import record_usage

    set_default_backend(engine)
    try:
        with record_usage() as log:
            try:
                yield
            finally:
                sys.stdout.flush()
                report = make_report(log.programs, log.usage, log.wall_s, log.models)
                print_report(report, engine.load_s)
                if report_path is not None:
                    write_report(report, report_path)
    finally:
        set_default_backend(None)
        engine.shutdown()
