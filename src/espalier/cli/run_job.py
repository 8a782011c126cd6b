"""What `espalier run` does: a script, a program once, or a program on many rows; and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espalier.cli.batch import BatchPlan, run_rows
from espalier.cli.engine_choice import LazyEngine
from espalier.cli.failure import FAILED, INTERRUPTED, UsageError, print_error
from espalier.cli.program import (
    as_json,
    check_arguments,
    check_sampling,
    load_program,
    parse_input,
    result_of,
    run_once,
)
from espalier.cli.report import check_output_path
from espalier.cli.reporting import reporting
from espalier.cli.run_argv import RunTarget
from espalier.cli.script import print_user_traceback, run_script, with_user_line
from espalier.errors import EspalierError

SHOWN = ("result", "variables", "text", "all")
POLICIES = ("raise", "return")


@dataclass(frozen=True, slots=True)
class RunJob:
    """What to run, as it was asked for. `check` raises UsageError where the parts contradict."""

    target: RunTarget
    script_args: list[str]
    sampling: Mapping[str, Any]
    input_json: str | None = None
    batch: Path | None = None
    out: Path | None = None
    on_error: str | None = None
    concurrency: int | None = None
    show: str | None = None
    report: Path | None = None
    trace: Path | None = None

    def check(self) -> None:
        """Raises UsageError for options that would have no effect here, and for unknown values."""
        if self.target.function is None:
            self._refuse("needs FILE.py:FUNCTION", "input_json", "batch", *_BATCH_ONLY, "show")
            if self.sampling:
                name = next(iter(self.sampling)).replace("_", "-")
                raise UsageError(
                    f"--{name} needs FILE.py:FUNCTION; a script sets its own sampling, in run() "
                    "or gen()."
                )
        elif self.script_args:
            raise UsageError(
                f"unexpected {self.script_args[0]!r}; the arguments of a program are given by "
                "--input."
            )
        elif self.batch is None:
            self._refuse("needs --batch", *_BATCH_ONLY)
        else:
            self._refuse("cannot be used with --batch", "input_json", "show")
        _check_value("--on-error", self.on_error, POLICIES)
        _check_value("--show", self.show, SHOWN)
        check_output_path("--report", self.report)
        check_output_path("--trace", self.trace)

    def _refuse(self, why: str, *names: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                flag = "--" + name.removesuffix("_json").replace("_", "-")
                raise UsageError(f"{flag} {why}.")

    def run(self, engine: LazyEngine) -> int:
        """Does it; returns the exit status. Raises what the program raises."""
        if self.target.function is None:
            return run_script(
                self.target.file, self.script_args, lambda error: error is engine.failure
            )
        program = load_program(self.target.file, self.target.function)
        check_sampling(program, self.sampling)
        if self.batch is None:
            arguments = parse_input(self.input_json if self.input_json is not None else "{}")
            check_arguments(program, arguments)
            print(_shown(result_of(run_once(program, arguments, self.sampling)), self.show))
            return 0
        plan = BatchPlan(
            self.batch,
            self.out if self.out is not None else Path("-"),
            self.on_error or "raise",
            self.concurrency,
            self.sampling,
        )
        failed = run_rows(program, plan)
        if failed:
            rows = "1 row" if failed == 1 else f"{failed} rows"
            print_error(f"{rows} failed; see {plan.target}.")
        return 0


_BATCH_ONLY = ("out", "on_error", "concurrency")


def _check_value(flag: str, value: str | None, allowed: tuple[str, ...]) -> None:
    if value is not None and value not in allowed:
        raise UsageError(f"{flag} is {value!r}; allowed are {', '.join(allowed)}.")


def _shown(result: Mapping[str, Any], what: str | None) -> str:
    if what in (None, "result"):
        value = result["return_value"]
        shown = value if value is not None else result["variables"]
    else:
        shown = result if what == "all" else result[str(what)]
    return shown if isinstance(shown, str) else as_json(shown, indent=2)


def run_with_report(job: RunJob, engine: LazyEngine) -> int:
    """Runs the job on the engine as the default backend, prints the report, returns the status."""
    job.check()
    with reporting(engine, job.report, job.trace):
        status = _status_of(job, engine)
    if status == 0 and engine.load_s is None and engine.choice.given():
        names = ", ".join(engine.choice.given())
        print_error(f"{names} had no effect: no program ran on the engine of this command.")
    return status


def _status_of(job: RunJob, engine: LazyEngine) -> int:
    try:
        return job.run(engine)
    except UsageError:
        raise
    except EspalierError as error:
        print_error(with_user_line(error, job.target.file))
    except KeyboardInterrupt as interrupt:
        print_error(f"interrupted. {interrupt}".rstrip())
        return INTERRUPTED
    except (SystemExit, BrokenPipeError):
        raise
    except BaseException as error:
        print_user_traceback(error, job.target.file)
    return FAILED
