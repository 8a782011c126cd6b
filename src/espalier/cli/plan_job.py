"""What `espalier plan` does: reads the rows and the statements, and plans the program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from espalier.cli.batch_rows import BatchRow, read_rows
from espalier.cli.failure import UsageError
from espalier.cli.program import check_arguments, check_sampling, load_program, parse_input
from espalier.errors import UserInputError

if TYPE_CHECKING:
    from espalier.lang.function import SglFunction
    from espalier.lang.planning import PlanRow
    from espalier.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What to plan, as it was asked for."""

    file: Path
    function: str
    batch: Path | None
    input_json: str | None
    model: str | None
    cache_tokens: str | None
    output_tokens: tuple[str, ...]
    assume: tuple[str, ...]
    prices: Path | None
    report: Path | None
    on_error: str
    sampling: Mapping[str, Any]


def plan_rows(request: PlanRequest, on_row: Callable[[int], None] | None = None) -> Plan:
    """Plans a program of a file. `on_row` gets the number of rows that are done.

    Raises UsageError for options that say nothing clear, UserInputError for files, rows and names.
    """
    from espalier.lang.options import split_options
    from espalier.lang.planning import PlanJob, run_plan

    lengths, texts = stated_lengths(request.output_tokens), stated_texts(request.assume)
    cache_tokens = cache_tokens_of(request.cache_tokens)
    _check_report(request.report)
    program = load_program(request.file, request.function)
    check_sampling(program, request.sampling)
    rows = _rows(request, program)
    options, _ = split_options(request.sampling, frozenset())
    num_done = 0

    def row_ended() -> None:
        nonlocal num_done
        num_done += 1
        if on_row is not None:
            on_row(num_done)

    return run_plan(
        PlanJob(
            program.func,
            rows,
            options,
            program.is_async,
            model=request.model,
            cache_tokens=cache_tokens,
            output_tokens=lengths,
            assume=texts,
            prices=request.prices,
            on_error=request.on_error,
            on_row=row_ended,
        )
    )


def _rows(request: PlanRequest, program: SglFunction) -> list[PlanRow]:
    if request.batch is None:
        arguments = parse_input(request.input_json if request.input_json is not None else "{}")
        check_arguments(program, arguments)
        found = [BatchRow(1, arguments)]
    else:
        found = read_rows(request.batch, lambda arguments: check_arguments(program, arguments))
    broken = [row for row in found if row.error is not None]
    if broken and request.on_error == "raise":
        more = f" ({len(broken)} rows are broken in all)" if len(broken) > 1 else ""
        raise UserInputError(f"{broken[0].error}{more} --on-error return plans the other rows.")
    return [_plan_row(row, program) for row in found]


def _plan_row(row: BatchRow, program: SglFunction) -> PlanRow:
    from espalier.lang.planning import PlanRow

    if row.arguments is None:
        return PlanRow(row.number, None, row.error)
    if isinstance(row.arguments, Mapping):
        return PlanRow(row.number, ((), {**program.bound_arguments, **row.arguments}))
    return PlanRow(row.number, (tuple(row.arguments), dict(program.bound_arguments)))


def cache_tokens_of(text: str | None) -> int | str | None:
    """The value of --cache-tokens."""
    if text is None or text == "unlimited":
        return text
    try:
        return int(text.replace("_", "").replace(",", ""))
    except ValueError:
        raise UsageError(f"--cache-tokens is {text!r}; a number or unlimited is allowed.") from None


def stated_lengths(values: Sequence[str]) -> dict[str, Any] | None:
    """Lengths by name from `N` and `NAME=N`; "*" stands for every other name."""
    lengths: dict[str, list[int]] = {}
    for value in values:
        name, has_name, number = value.rpartition("=")
        if has_name and not name:
            raise UsageError(f"--output-tokens is {value!r}; N or NAME=N is allowed.")
        try:
            lengths.setdefault(name or "*", []).append(int(number))
        except ValueError:
            raise UsageError(f"--output-tokens is {value!r}; N or NAME=N is allowed.") from None
    if len(lengths.get("*", [])) > 1:
        raise UsageError("--output-tokens gives a length for all answers twice; give it once.")
    return dict(lengths) or None


def stated_texts(values: Sequence[str]) -> dict[str, Any] | None:
    """Texts by name from `NAME=TEXT`."""
    texts: dict[str, list[str]] = {}
    for value in values:
        name, has_text, text = value.partition("=")
        if not has_text or not name:
            raise UsageError(f"--assume is {value!r}; NAME=TEXT is allowed.")
        texts.setdefault(name, []).append(text)
    return dict(texts) or None


def _check_report(path: Path | None) -> None:
    """Before anything is planned: a report that could not be written."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UserInputError(f"--report {path} cannot be written: give a file in a folder that is.")
