"""`espalier plan`: its options."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from espalier.cli.failure import UsageError, ends_with_status
from espalier.cli.options import with_options
from espalier.cli.plan_job import PlanRequest, plan_rows
from espalier.cli.run_argv import parse_target
from espalier.cli.sampling_choice import SamplingChoice

TargetArgument = Annotated[str, typer.Argument(metavar="FILE.py:FUNCTION")]
BatchOption = Annotated[
    Path | None,
    typer.Option("--batch", metavar="FILE", help="JSON Lines with the arguments of each run."),
]
InputOption = Annotated[
    str | None,
    typer.Option("--input", metavar="JSON", help="Arguments of one run, in place of a batch."),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME|PATH",
        help="Alias, .gguf file, Hugging Face folder, or org/name on the hub.",
        show_default="ESPALIER_MODEL, else smollm2",
    ),
]
CacheOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|unlimited",
        help="Tokens that the prefix cache holds.",
        show_default="what an engine here would have",
    ),
]
LengthOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="N|NAME=N",
        help="Tokens of each answer, or of one variable's; repeated for a name: in turn.",
    ),
]
AssumeOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=TEXT", help="Answer of a variable; repeated for a name: in turn."),
]
PricesOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Prices as JSON, in place of the example."),
]
ReportOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write an HTML report: tree and parts.")
]
OnErrorOption = Annotated[
    str | None,
    typer.Option(
        metavar="raise|return",
        help="Stop at a row that fails (the default), or name it and go on.",
    ),
]


@ends_with_status
@with_options(sampling=SamplingChoice)
def plan(
    target: TargetArgument,
    *,
    batch: BatchOption = None,
    input_json: InputOption = None,
    model: ModelOption = None,
    cache_tokens: CacheOption = None,
    output_tokens: LengthOption = None,
    assume: AssumeOption = None,
    prices: PricesOption = None,
    report: ReportOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    on_error: OnErrorOption = None,
    sampling: SamplingChoice,
) -> None:
    """Say what a program would cost on a batch, without running a model.

    The program runs with the model's tokenizer and assumed answers. Answers are placeholders of a
    stated length, a shortest text of their form, the first choice, or what --assume states.
    """
    from espalier.cli.program import as_json as json_text

    found = parse_target(target)
    if found.function is None:
        raise UsageError(f"{target!r} names no program; give FILE.py:FUNCTION.")
    if on_error not in (None, "raise", "return"):
        raise UsageError(f"--on-error is {on_error!r}; allowed are raise, return.")
    if batch is not None and input_json is not None:
        raise UsageError("--input cannot be used with --batch.")
    request = PlanRequest(
        found.file,
        found.function,
        batch,
        input_json,
        model,
        cache_tokens,
        tuple(output_tokens or ()),
        tuple(assume or ()),
        prices,
        report,
        on_error or "raise",
        sampling.given(),
    )
    with _progress() as on_row:
        made = plan_rows(request, on_row)
    print(json_text(made.to_json(), indent=2) if as_json else str(made))
    if report is not None:
        made.write_report(report)


@contextmanager
def _progress() -> Iterator[Callable[[int], None] | None]:
    """Shows how many rows are planned, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.status import Status

    with Status("planning", console=Console(file=sys.stderr)) as status:

        def on_row(count: int) -> None:
            if count % 100 == 0:
                status.update(f"planning: {count:,} rows")

        yield on_row
