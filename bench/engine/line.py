"""The straight line through costs, and how far they are from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEAST_POINTS = 3  # fewer say nothing about a line


@dataclass(frozen=True)
class Line:
    """The least-squares line through costs, and the largest distance from it as a share of it."""

    ms_at_0: float
    ms_per_1000_tokens: float
    largest_distance: float

    def __str__(self) -> str:
        return f"{self.ms_at_0:.2f} ms + {self.ms_per_1000_tokens:.2f} ms per 1,000 tokens"

    def at(self, context: float) -> float:
        """Milliseconds at a context of so many tokens."""
        return self.ms_at_0 + self.ms_per_1000_tokens * context / 1000


def line_fit(contexts: Sequence[float], costs: Sequence[float]) -> Line | None:
    """The line through milliseconds by contexts; None for fewer than LEAST_POINTS."""
    if len(contexts) < LEAST_POINTS:
        return None
    slope, start = np.polyfit(contexts, costs, 1)
    fitted = slope * np.asarray(contexts) + start
    worst = np.max(np.abs(np.asarray(costs) - fitted) / fitted)
    return Line(float(start), float(1000 * slope), float(worst))
