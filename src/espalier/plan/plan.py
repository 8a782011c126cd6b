"""A finished plan, as `f.plan(batch)` returns it: its figures, as text and as an HTML report."""

from __future__ import annotations

from pathlib import Path

from espalier.errors import UserInputError
from espalier.plan.figures import PlanFigures
from espalier.plan.text import plan_text


class Plan(PlanFigures):
    """What a program would cost on a batch; `str(plan)` is the table for a terminal."""

    __slots__ = ()

    def __str__(self) -> str:
        return plan_text(self)

    def write_report(self, path: str | Path) -> None:
        """Writes the HTML report; raises UserInputError where it cannot be written."""
        from espalier.plan.report import plan_page

        try:
            Path(path).write_text(plan_page(self), encoding="utf-8")
        except OSError as error:
            raise UserInputError(f"the report {path} cannot be written: {error}.") from error
