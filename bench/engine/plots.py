"""Pictures of figures, by matplotlib, which only benches need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.engine.summary import Comparison
from bench.peers.catalog import ESPALIER


def require_matplotlib() -> Any:
    """matplotlib.pyplot, drawing into files; exits with advice where it is missing."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit(
            "a plot needs matplotlib: run `pip install matplotlib`, or leave out --plot."
        ) from None
    mpl.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(plot: Callable[[], None]) -> None:
    """Draws after results were printed; exits with the reason where that fails."""
    try:
        plot()
    except Exception as error:
        # Whatever a drawing library raises, the figures are out, and no traceback need follow.
        raise SystemExit(f"the plot was not written: {type(error).__name__}: {error}") from error


def plot_comparisons(path: Path, comparisons: Sequence[Comparison], names: Sequence[str]) -> None:
    """Bars of every peer as a share of the best one that is not Espalier; the bar as a line."""
    pyplot = require_matplotlib()
    shown = [one for one in comparisons if one.best_peer is not None]
    figure, axes = pyplot.subplots(figsize=(1.5 + 1.5 * max(1, len(shown)), 5))
    width = 0.8 / max(1, len(names))
    for index, name in enumerate(names):
        heights = [_share(one, name) for one in shown]
        places = [place + (index - (len(names) - 1) / 2) * width for place in range(len(shown))]
        axes.bar(places, heights, width, label=name, zorder=3 if name == ESPALIER else 2)
    for place, one in enumerate(shown):
        label = "bar" if place == 0 else None
        axes.hlines(
            one.work.bar, place - 0.4, place + 0.4, "black", "dashed", label=label, zorder=4
        )
    axes.set_xticks(range(len(shown)), [one.work.name.replace("-", "\n") for one in shown])
    axes.set_ylabel("tokens/s, best peer = 1")
    axes.grid(axis="y", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _share(one: Comparison, name: str) -> float:
    assert one.best_peer is not None
    best = one.figures[one.best_peer].median
    own = one.figures[name].median if name in one.figures else None
    return own / best if own is not None and best else 0.0


def plot_lines(
    path: Path, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], x: str, y: str
) -> None:
    """One line for each name, through points (x values, y values)."""
    pyplot = require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, (x_values, y_values) in lines.items():
        axes.plot(x_values, y_values, marker="o", label=name)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
