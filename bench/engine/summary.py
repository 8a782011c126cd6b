"""From the figures of rounds to medians, spreads, ratios and a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.engine.workloads import Workload
from bench.peers.catalog import ESPALIER

DISTURBED_SHARE = 0.1  # of the processors' time


def decode_rate(rows: int, num_tokens: int, first_s: float, all_s: float) -> float:
    """Decoded tokens per second of all rows: what `num_tokens` more tokens cost than one.

    `first_s` is the time of a call for 1 token a row, `all_s` of one for num_tokens + 1.
    Raises ValueError where the longer call was not the slower one: the clock saw other work.
    """
    if all_s <= first_s:
        raise ValueError(f"{num_tokens + 1} tokens took {all_s:.4f} s and 1 token {first_s:.4f} s.")
    return rows * num_tokens / (all_s - first_s)


@dataclass(frozen=True)
class Round:
    """Tokens per second of one round, and the share of the processors that others took in it."""

    rate: float
    others: float = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether others took so much that the rate says little."""
        return self.others > DISTURBED_SHARE


@dataclass(frozen=True)
class Figure:
    """One peer at one workload, over all rounds.

    Attributes:
        rounds: in order.
        problem: what went wrong, if anything did.
    """

    rounds: tuple[Round, ...] = ()
    problem: str | None = None

    @property
    def rates(self) -> list[float]:
        """Rates that count: those of undisturbed rounds, or all where every round was disturbed."""
        calm = [one.rate for one in self.rounds if not one.is_disturbed]
        return calm or [one.rate for one in self.rounds]

    @property
    def num_disturbed(self) -> int:
        """Rounds in which others took too much."""
        return sum(one.is_disturbed for one in self.rounds)

    @property
    def median(self) -> float | None:
        """Median of the rates that count; None without any."""
        return statistics.median(self.rates) if self.rounds else None

    @property
    def spread(self) -> float | None:
        """Largest minus smallest rate that counts, as a share of the median."""
        if self.median is None:
            return None
        return (max(self.rates) - min(self.rates)) / self.median

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        if self.median is None or self.spread is None:
            return {"problem": self.problem}
        return {
            "median": round(self.median, 1),
            "spread": round(self.spread, 3),
            "rounds": [round(one.rate, 1) for one in self.rounds],
            "others": [round(one.others, 2) for one in self.rounds],
            **({"problem": self.problem} if self.problem else {}),
        }


@dataclass(frozen=True)
class Comparison:
    """All peers at one workload."""

    work: Workload
    figures: Mapping[str, Figure]

    @property
    def best_peer(self) -> str | None:
        """The fastest peer that counts for the ratio; None where none was measured."""
        rated = {
            name: figure.median
            for name, figure in self.figures.items()
            if name != ESPALIER
            and figure.median is not None
            and (not self.work.against or name in self.work.against)
        }
        return max(rated, key=lambda name: rated[name]) if rated else None

    @property
    def ratio(self) -> float | None:
        """Median of Espalier over that of the best peer."""
        best = None if self.best_peer is None else self.figures[self.best_peer].median
        own = self.figures[ESPALIER].median if ESPALIER in self.figures else None
        return None if best is None or own is None else own / best

    def as_json(self) -> dict[str, Any]:
        """For the report."""
        ratio = self.ratio
        return {
            "work": self.work.name,
            "model": self.work.model,
            "rows": self.work.rows,
            "context": self.work.context,
            "shared": self.work.shared,
            "tokens_per_s": {name: figure.as_json() for name, figure in self.figures.items()},
            "best_peer": self.best_peer,
            "ratio": None if ratio is None else round(ratio, 3),
            "bar": self.work.bar,
            "reached": None if ratio is None else ratio >= self.work.bar,
        }


def table(comparisons: Sequence[Comparison], names: Sequence[str]) -> str:
    """A text table: a line for each workload, a column for each peer, the ratio beside its bar."""
    rows = [["work", *names, "best peer", "ratio", "bar", ""]]
    for one in comparisons:
        cells = [_cell(one.figures.get(name)) for name in names]
        ratio = "-" if one.ratio is None else f"{one.ratio:.2f}"
        reached = "" if one.ratio is None else "ok" if one.ratio >= one.work.bar else "below"
        rows.append(
            [one.work.name, *cells, one.best_peer or "-", ratio, f">= {one.work.bar}", reached]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *problems(comparisons), *_disturbances(comparisons)])


def problems(comparisons: Sequence[Comparison]) -> list[str]:
    """A line for each figure that is missing or lacks rounds, with the reason."""
    return [
        f"{one.work.name}, {name}: {figure.problem}"
        for one in comparisons
        for name, figure in one.figures.items()
        if figure.problem
    ]


def _disturbances(comparisons: Sequence[Comparison]) -> list[str]:
    figures = [figure for one in comparisons for figure in one.figures.values()]
    disturbed = sum(figure.num_disturbed for figure in figures)
    if not disturbed:
        return []
    hopeless = sum(0 < figure.num_disturbed == len(figure.rounds) for figure in figures)
    return [
        f"In {disturbed} of {sum(len(figure.rounds) for figure in figures)} rounds other processes "
        f"took over {DISTURBED_SHARE:.0%} of the processors. They are left out, but for {hopeless} "
        "figures (marked !) that have no other rounds: repeat those on a quiet machine."
    ]


def _cell(figure: Figure | None) -> str:
    if figure is None or figure.median is None or figure.spread is None:
        return "-"
    mark = "!" if figure.num_disturbed == len(figure.rounds) else ""
    return f"{figure.median:.0f} ±{figure.spread * 50:.0f}%{mark}"
