"""Pictures of figures, by matplotlib, which only benches need."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.engine.line import line_fit
from bench.engine.summary import Comparison
from bench.peers.catalog import ESPALIER, PEERS

_COLOURS = {name: f"C{index}" for index, name in enumerate(PEERS)}  # a peer's in every plot
_PALE = 0.3  # opacity of what does not count for the ratio


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
    """Bars of every peer as a share of the best one that is not Espalier, and the wanted ratio.

    Raises ValueError where no work has a ratio.
    """
    shown = [one for one in comparisons if one.ratio is not None]
    if not shown:
        raise ValueError("no work has figures of both Espalier and another program")
    pyplot = require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(max(7.0, 1 + 1.4 * len(shown)), 5.2))
    for index, name in enumerate(names):
        _draw_peer(axes, shown, name, index, len(names))
    for place, one in enumerate(shown):
        label = "wanted" if place == 0 else None
        ends = place - 0.42, place + 0.42
        axes.hlines(one.work.bar, *ends, "black", "dashed", label=label, zorder=4)
    axes.set_xticks(range(len(shown)), [_tick(one) for one in shown])
    axes.set_xlim(-0.6, len(shown) - 0.4)
    axes.margins(y=0.1)
    axes.set_ylabel("tokens/s, as a multiple of the best peer's")
    axes.grid(axis="y", alpha=0.3)
    axes.set_title(_missing(comparisons, shown), loc="left", fontsize="small")
    _finish(figure, axes, path)


def _draw_peer(axes: Any, shown: Sequence[Comparison], name: str, index: int, count: int) -> None:
    """One peer's bar at every work; Espalier's have their height written above."""
    width = 0.8 / count
    places = [place + (index - (count - 1) / 2) * width for place in range(len(shown))]
    heights = [share(one, name) for one in shown]
    bars = axes.bar(places, heights, width, label=name, color=_COLOURS[name], zorder=3)
    for bar, one in zip(bars, shown, strict=True):
        if not _counts(one, name):
            bar.set_alpha(_PALE)
    if name == ESPALIER:
        labels = axes.bar_label(bars, [f"{height:.2f}" for height in heights], padding=2, zorder=5)
        for label in labels:  # the wanted ratio may run through it
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5})


def _counts(one: Comparison, name: str) -> bool:
    return name == ESPALIER or not one.work.against or name in one.work.against


def share(one: Comparison, name: str) -> float:
    """A peer's tokens per second by those of the best peer; 0 where it has no figure."""
    assert one.best_peer is not None
    best = one.figures[one.best_peer].median
    own = one.figures[name].median if name in one.figures else None
    return own / best if own is not None and best else 0.0


def _tick(one: Comparison) -> str:
    """The name of the work, a line for each word, and what 1 is."""
    assert one.best_peer is not None
    name = re.sub(r"-(?=[a-z])", "\n", one.work.name)
    return f"{name}\n\n1 = {one.figures[one.best_peer].median:,.0f} tok/s\n({one.best_peer})"


def _missing(comparisons: Sequence[Comparison], shown: Sequence[Comparison]) -> str:
    """What the picture does not say by itself."""
    lacking = ", ".join(one.work.name for one in comparisons if one not in shown)
    notes = [f"Without a ratio: {lacking}."] if lacking else []
    if any(
        share(one, name) > 0 and not _counts(one, name) for one in shown for name in one.figures
    ):
        notes.append("Pale bars do not count as the best peer.")
    return " ".join(notes)


def plot_contexts(path: Path, lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Costs of each peer by context, and the straight line through Espalier's.

    Raises ValueError where there are no costs.
    """
    measured = {name: line for name, line in lines.items() if line[0]}
    if not measured:
        raise ValueError("nothing was measured")
    pyplot = require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, (contexts, costs) in measured.items():
        style = {"marker": "o", "markersize": 4, "color": _COLOURS[name]}
        axes.plot(contexts, costs, label=name, linewidth=1.2, **style)
    fit = line_fit(*measured.get(ESPALIER, ([], [])))
    if fit is not None:
        ends = 0.0, max(measured[ESPALIER][0])
        fitted = [fit.at(end) for end in ends]
        axes.plot(ends, fitted, "k--", label=f"espalier's line: {fit}", linewidth=1, zorder=4)
    axes.set_xlabel("context, tokens")
    axes.set_ylabel("one more decoded token of 1 row, ms")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    _finish(figure, axes, path)


def _finish(figure: Any, axes: Any, path: Path) -> None:
    """Puts the legend above the picture, where it hides nothing, and writes the file."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(len(labels), 4 if figure.get_figwidth() < 10 else 8)  # inches
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False)
    figure.set_layout_engine("constrained")
    figure.savefig(path, dpi=110)
    require_matplotlib().close(figure)
