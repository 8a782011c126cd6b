"""Planning a program: running it on a backend without a model, row by row, in their order.

Which requests there are and what they count as is the plan part's business.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from espalier.errors import ProgramError, UserInputError, shown
from espalier.lang import loop
from espalier.lang.interpreter import Launch, launch, run_body, run_body_async
from espalier.lang.options import RunOptions
from espalier.lang.program import refuse_blocking

if TYPE_CHECKING:
    from espalier.plan.model import PlannedModel
    from espalier.plan.plan import Plan
    from espalier.plan.planning import Planning


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """A row: its number for messages, and its arguments or what is wrong with them."""

    number: int
    arguments: Arguments | None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class PlanJob:
    """What is to be planned and under which assumptions. Raises UserInputError when made.

    Attributes:
        rows: the batch.
        model: name, path, or a model that is loaded already.
        cache_tokens, output_tokens, assume, prices: see SglFunction.plan.
        on_error: "raise" or "return".
        on_row: called as each row ends.
    """

    function: Callable[..., Any]
    rows: Sequence[PlanRow]
    options: RunOptions
    is_async: bool
    model: str | Path | PlannedModel | None = None
    cache_tokens: int | str | None = None
    output_tokens: Any = None
    assume: Mapping[str, Any] | None = None
    prices: str | Path | None = None
    on_error: str = "raise"
    on_row: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("raise", "return"):
            raise UserInputError(f"on_error is {self.on_error!r}; 'raise' or 'return' is allowed.")
        options = self.options
        if options.stream or options.trace or options.backend is not None:
            raise UserInputError(
                "stream, trace and backend have no place in a plan: no model is run. Leave them "
                "out."
            )


def checked_rows(
    batch: Sequence[Any], check: Callable[[int, Any], Arguments], on_error: str
) -> list[PlanRow]:
    """The items of a batch as rows; raises what `check` raises for the first that is wrong."""

    def row(index: int, item: Any) -> PlanRow:
        try:
            return PlanRow(index, check(index, item))
        except (TypeError, UserInputError) as error:
            if on_error == "raise":
                raise
            return PlanRow(index, None, error)

    return [row(index, item) for index, item in enumerate(batch)]


def run_plan(job: PlanJob) -> Plan:
    """Plans each row on its own, one after the other.

    With on_error "raise", raises ProgramError for the first row that fails; UserInputError for
    statements that fit nothing; and what opening the model raises.
    """
    from espalier.plan.assumptions import Assumptions
    from espalier.plan.figures import FailedRow
    from espalier.plan.model import PlannedModel, load_planned_model
    from espalier.plan.planning import Planning, cache_size
    from espalier.plan.prices import read_prices

    refuse_blocking("planning", "the plan outside of it")
    assumptions = Assumptions.of(job.output_tokens, job.assume)
    prices = read_prices(job.prices)
    model = job.model if isinstance(job.model, PlannedModel) else load_planned_model(job.model)
    planning = Planning(model, assumptions, cache_size(job.cache_tokens, model))
    failed: list[FailedRow] = []
    read_names: set[str] = set()
    for index, row in enumerate(job.rows):
        planning.begin_row(index)
        error = _plan_row(job, planning, row, read_names)
        if error is not None:
            if job.on_error == "raise":
                raise ProgramError(_message(row.number, error, read_names)) from error
            failed.append(FailedRow(row.number, f"{type(error).__name__}: {error}"))
        if job.on_row is not None:
            job.on_row()
    name = getattr(job.function, "__name__", "program")
    return planning.finish(name, len(job.rows), failed, prices, read_names)


def _plan_row(
    job: PlanJob, planning: Planning, row: PlanRow, read_names: set[str]
) -> BaseException | None:
    if row.arguments is None:
        return row.error
    args, kwargs = row.arguments
    # A def body waits for each of its calls, so that requests come in the program's own order.
    options = replace(job.options, backend=planning.backend, use_thread=job.is_async)
    start = launch(job.function, args, kwargs, options, row.number)
    start.program.read_names = read_names
    with contextlib.suppress(Exception):  # the state holds the error of its body
        _run_to_end(start)
    start.program.when_idle().wait()
    return start.state.error()


def _run_to_end(start: Launch) -> None:
    if start.is_async:
        loop.run_blocking(run_body_async(start))
    else:
        run_body(start)


def _message(number: int, error: BaseException, read_names: set[str]) -> str:
    names = ", ".join(sorted(read_names))
    hint = (
        f" The program reads {names}: where it needs certain answers, state them by assume."
        if names
        else ""
    )
    return f"row {number} cannot be planned: {type(error).__name__}: {shown_error(error)}{hint}"


def shown_error(error: BaseException) -> str:
    """An error's message, or its kind where it has none."""
    return str(error) or shown(error)
