"""What happens around the drawing of plots."""

from __future__ import annotations

import pytest
from bench.engine.plots import draw


def test_plot_that_fails_ends_with_its_reason() -> None:
    def plot() -> None:
        raise OSError("no space left")

    with pytest.raises(SystemExit, match="the plot was not written: OSError: no space left"):
        draw(plot)
