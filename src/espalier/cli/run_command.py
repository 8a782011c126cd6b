"""`espalier run`: its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from espalier.cli.engine_choice import EngineChoice, LazyEngine
from espalier.cli.failure import ends_with_status
from espalier.cli.options import with_options
from espalier.cli.run_argv import target_and_arguments
from espalier.cli.run_job import RunJob, run_with_report
from espalier.cli.sampling_choice import SamplingChoice

TargetArgument = Annotated[str, typer.Argument(metavar="FILE.py[:FUNCTION]")]
ScriptArguments = Annotated[
    list[str] | None, typer.Argument(metavar="ARGS", help="Arguments of the script.")
]
InputOption = Annotated[
    str | None,
    typer.Option("--input", metavar="JSON", help="Arguments: an object, or an array in order."),
]
BatchOption = Annotated[
    Path | None,
    typer.Option("--batch", metavar="FILE", help="JSON Lines with the arguments of each run."),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Results of a batch, in its order, as JSON Lines."),
]
OnErrorOption = Annotated[
    str | None,
    typer.Option(
        metavar="raise|return",
        help="Stop at a row that fails (the default), or write its error and go on.",
    ),
]
ConcurrencyOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Most rows at work at once.")
]
ShowOption = Annotated[
    str | None,
    typer.Option(
        metavar="result|variables|text|all",
        help="What to print of one run; result is what it returned, else its variables.",
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the report as JSON too.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.html", help="Draw what ran: calls, forks, texts by origin."),
]


@ends_with_status
@with_options(engine=EngineChoice, sampling=SamplingChoice)
def run(
    target: TargetArgument,
    *,
    script_args: ScriptArguments = None,
    input_json: InputOption = None,
    batch: BatchOption = None,
    out: OutOption = None,
    on_error: OnErrorOption = None,
    concurrency: ConcurrencyOption = None,
    show: ShowOption = None,
    report: ReportOption = None,
    trace: TraceOption = None,
    engine: EngineChoice,
    sampling: SamplingChoice,
) -> None:
    """Run a script, or one program of a file, on the local engine.

    FILE.py runs as Python runs it, with the local engine as the default backend; everything after
    FILE.py belongs to the script, options of this command come before. FILE.py:FUNCTION runs one
    program, once (--input) or for each row of a file (--batch). A report on standard error ends
    the run.
    """
    job = RunJob(
        *target_and_arguments([target, *(script_args or ())]),
        sampling.given(),
        input_json,
        batch,
        out,
        on_error,
        concurrency,
        show,
        report,
        trace,
    )
    status = run_with_report(job, LazyEngine(engine))
    if status:
        raise typer.Exit(status)
