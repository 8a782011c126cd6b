"""A recorded run as a page: in a notebook, as text, or in a file."""

from __future__ import annotations

import time
from os import PathLike
from pathlib import Path

from espalier.errors import UserInputError
from espalier.report.drawing import Drawing
from espalier.report.figures import counted
from espalier.report.page import asset, escape, page
from espalier.report.record import Recording, RunRecord
from espalier.report.tables import cards, variables
from espalier.report.texts import texts
from espalier.report.timeline import timeline

_FRAME_PX = 720


class RunView:
    """A drawing of recorded runs, made anew each time it is asked for.

    `html` is a whole page in one file. `save(path)` writes it. In a notebook it shows itself.

    Attributes:
        recording: what is drawn.
    """

    def __init__(self, recording: Recording, of: RunRecord | None = None) -> None:
        self.recording = recording
        self._of = of

    def __repr__(self) -> str:
        return f"<RunView of {counted(len(self.runs), 'run')}; .save(path) writes the page>"

    @property
    def runs(self) -> list[RunRecord]:
        """The runs that are drawn: all that were recorded, or one with those inside it."""
        runs = list(self.recording.runs)
        return runs if self._of is None else [run for run in runs if _is_inside(run, self._of)]

    @property
    def html(self) -> str:
        """The page."""
        drawing = Drawing.of(self.runs)
        title = drawing.runs[0].title if len(drawing.runs) == 1 else _several(drawing)
        body = (
            f"{self._head(title, drawing)}{self._notes(drawing)}{cards(drawing)}"
            f"{timeline(drawing)}{texts(drawing)}{variables(drawing)}"
        )
        return page(title, body, style=asset("run.css"), script=asset("run.js"))

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the page to a file. Raises UserInputError where that cannot be."""
        try:
            Path(path).write_text(self.html, encoding="utf-8")
        except OSError as error:
            raise UserInputError(f"the page cannot be written to {path}: {error}.") from error

    def _repr_html_(self) -> str:
        # A frame of its own keeps the page's style and the notebook's apart.
        return (
            f'<iframe sandbox="allow-scripts" srcdoc="{escape(self.html)}" title="A run" '
            f'style="width:100%;height:{_FRAME_PX}px;border:0"></iframe>'
        )

    def _head(self, title: str, drawing: Drawing) -> str:
        models = ", ".join(dict.fromkeys(run.model for run in drawing.runs)) or "no model"
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.recording.began_at))
        return (
            f'<header class="top"><h1>{escape(title)}</h1>'
            f"<p>{escape(models)} · recorded {when}</p></header>"
        )

    def _notes(self, drawing: Drawing) -> str:
        notes = []
        if not drawing.runs:
            notes.append("No program ran while this was recorded.")
        if self.recording.num_left_out and self._of is None:
            left_out = self.recording.num_left_out
            notes.append(
                f"The first {len(self.recording.runs)} runs are drawn; "
                f"{counted(left_out, 'more run')} ran and were not recorded."
            )
        if any(run.budget.is_cut for run in drawing.runs):
            notes.append(
                "There was more than a recording holds: some text, calls, states or variables are "
                "missing, and sums leave them out."
            )
        if any(run.ended_at is None for run in drawing.runs):
            notes.append("A program was still running when this was drawn.")
        errors = [run for run in drawing.runs if run.error]
        told = [f"{run.title}: {run.error}" for run in errors[:5]]
        if len(errors) > 5:
            told.append(f"{len(errors) - 5} more runs failed.")
        return "".join(
            f'<p class="error" role="alert">{escape(text)}</p>' for text in told
        ) + "".join(f'<p class="note">{escape(text)}</p>' for text in notes)


def _several(drawing: Drawing) -> str:
    roots = [run for run in drawing.runs if run.parent not in drawing.runs]
    if len(roots) == 1:
        return roots[0].title
    names = list(dict.fromkeys(run.title.partition("(")[0] for run in roots))
    shown = ", ".join(names[:4]) + (" and others" if len(names) > 4 else "")
    return f"{counted(len(roots), 'run')} of {shown}" if roots else "No run"


def _is_inside(run: RunRecord | None, outer: RunRecord) -> bool:
    while run is not None and run is not outer:
        run = run.parent
    return run is outer
