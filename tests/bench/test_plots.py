"""What plots show, and what happens around their drawing; pictures where matplotlib is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.engine.plots import draw, plot_comparisons, plot_contexts, share
from bench.engine.summary import Comparison, Figure, Round
from bench.engine.workloads import WORKLOADS
from bench.peers.catalog import ESPALIER

NAMES = ["espalier", "vllm", "llamacpp"]


def compared(**rates: float) -> list[Comparison]:
    figures = {name: Figure((Round(rate),)) for name, rate in rates.items()}
    return [Comparison(work, figures) for work in WORKLOADS]


def test_plot_that_fails_ends_with_its_reason() -> None:
    def plot() -> None:
        raise OSError("no space left")

    with pytest.raises(SystemExit, match="the plot was not written: OSError: no space left"):
        draw(plot)


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(ValueError, match="no work has figures of both"):
        plot_comparisons(Path("unused.png"), compared(espalier=3.0), NAMES)
    with pytest.raises(ValueError, match="nothing was measured"):
        plot_contexts(Path("unused.png"), {ESPALIER: ([], [])})


def test_share_is_that_of_the_best_peer() -> None:
    one = compared(espalier=30.0, vllm=10.0, llamacpp=5.0)[0]
    assert [share(one, name) for name in (*NAMES, "openvino")] == [3.0, 1.0, 0.5, 0.0]


def test_pictures_are_drawn_whatever_is_missing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="only plots need matplotlib")
    comparisons = compared(espalier=30.0, vllm=10.0, llamacpp=5.0)
    comparisons[1] = Comparison(comparisons[1].work, {ESPALIER: Figure(problem="died")})
    plot_comparisons(tmp_path / "compare.png", comparisons, NAMES)
    few = {ESPALIER: ([1.0, 2.0], [5.0, 6.0]), "vllm": ([], [])}
    plot_contexts(tmp_path / "few.png", few)
    plot_contexts(tmp_path / "line.png", {ESPALIER: ([1.0, 2.0, 3.0], [5.0, 6.0, 7.0])})
    for path in tmp_path.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 3
