"""Running a program on the rows of a file: results in the order of the rows, kept as they come.

A result is written as soon as every row before it is; what has ended out of order is written when
the batch stops early, so that no finished row is lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from espalier.cli.batch_rows import BatchRow, read_rows
from espalier.cli.program import as_json, check_arguments, result_of
from espalier.errors import ProgramError, UserInputError

if TYPE_CHECKING:
    from espalier.lang.function import SglFunction
    from espalier.lang.state import ProgramState


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """What to run: rows of `source` to `target` (`-`: standard input and output).

    `on_error` "raise" stops at the first row that fails; "return" writes its error and goes on.
    """

    source: Path
    target: Path
    on_error: str
    concurrency: int | None
    sampling: Mapping[str, Any]


class RowWriter:
    """Writes results in the order of their rows, each as one line, flushed."""

    def __init__(self, rows: list[BatchRow], stream: TextIO) -> None:
        self._rows = rows
        self._stream = stream
        self._waiting: dict[int, str] = {}
        self._next = 0
        self.num_written = 0

    def put(self, index: int, result: Mapping[str, Any]) -> None:
        """Takes the result of the row at `index` and writes what is next in order."""
        self._waiting[index] = as_json({"row": self._rows[index].number, **result})
        while self._next in self._waiting:
            self._write(self._waiting.pop(self._next))
            self._next += 1

    def write_rest(self) -> None:
        """Writes what has ended out of order, rows that are missing left out."""
        for index in sorted(self._waiting):
            self._write(self._waiting.pop(index))

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()
        self.num_written += 1


def run_rows(program: SglFunction, plan: BatchPlan) -> int:
    """Runs every row; returns how many failed.

    Raises ProgramError for the first row that fails (policy "raise"), UserInputError for files
    that cannot be used; KeyboardInterrupt says how many rows were kept.
    """
    rows = read_rows(plan.source, lambda arguments: check_arguments(program, arguments))
    broken = [row for row in rows if row.error is not None]
    if broken and plan.on_error == "raise":
        more = f" ({len(broken)} rows are broken in all)" if len(broken) > 1 else ""
        raise UserInputError(
            f"{broken[0].error}{more} Nothing was run; --on-error return runs the other rows."
        )
    with _output(plan) as stream:
        writer = RowWriter(rows, stream)
        try:
            return len(broken) + _run(program, plan, rows, writer)
        except KeyboardInterrupt:
            writer.write_rest()
            raise KeyboardInterrupt(
                f"{writer.num_written} of {len(rows)} rows are finished and kept in {plan.target}."
            ) from None
        except ProgramError as error:
            writer.write_rest()
            raise ProgramError(
                f"{error} {writer.num_written} finished rows are in {plan.target}; --on-error "
                "return goes on after a row that fails."
            ) from error


def _run(program: SglFunction, plan: BatchPlan, rows: list[BatchRow], writer: RowWriter) -> int:
    good = [index for index, row in enumerate(rows) if row.arguments is not None]
    for index, row in enumerate(rows):
        if row.error is not None:
            writer.put(index, {"error": _described(row.error)})
    failed = 0

    def on_result(position: int, state: ProgramState) -> None:
        nonlocal failed
        index = good[position]
        error = state.error()
        if error is None:
            writer.put(index, result_of(state))
            return
        if plan.on_error == "raise":
            raise ProgramError(
                f"row {rows[index].number} failed: {type(error).__name__}: {error}"
            ) from error
        failed += 1
        writer.put(index, {"error": _described(error)})

    arguments = [given for index in good if (given := rows[index].arguments) is not None]
    states = program.run_batch(
        arguments,
        num_threads="auto" if plan.concurrency is None else plan.concurrency,
        progress_bar=sys.stderr.isatty(),
        generator_style=True,
        on_error="return",
        on_result=on_result,
        **plan.sampling,
    )
    for _ in states:
        pass
    return failed


def _described(error: BaseException) -> dict[str, str]:
    return {"type": type(error).__name__, "message": str(error)}


@contextmanager
def _output(plan: BatchPlan) -> Iterator[TextIO]:
    if str(plan.target) == "-":
        yield sys.stdout
        return
    if plan.target.exists() and plan.source.exists() and plan.target.samefile(plan.source):
        raise UserInputError(f"--out {plan.target} is the batch itself; give another file.")
    # Programs put their errors into their states: what is caught here is the file's own.
    try:
        with open(plan.target, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
    except OSError as error:
        raise UserInputError(f"--out {plan.target} cannot be written: {error}.") from error
