"""The figures of a plan: counts per program part, what they assume, and what they would cost.

Values with a JSON form. How they are found is planning's, how they look text's and report's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espalier.backends.base import CallSite
from espalier.plan.counting import Counts, PartCounts
from espalier.plan.prefix_tree import PrefixTree
from espalier.plan.prices import PriceTable
from espalier.plan.request_log import Record
from espalier.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class FailedRow:
    """A row that could not be planned: its number as the caller counts, and why."""

    row: int
    error: str


@dataclass(frozen=True, slots=True)
class PartPlan:
    """Counts of one call of the program: variable, source line, and what its answers are."""

    name: str
    place: str  # "file:line", "" where it is not known
    kind: str  # "gen" or "select"
    counts: PartCounts
    assumed: str
    is_read: bool  # the program reads the variable, so that its course may depend on it


@dataclass(frozen=True, slots=True)
class ModelCost:
    """The price of the whole plan at one model, without and with cached prompts."""

    model: str
    unshared: float
    shared: float


@dataclass(frozen=True, slots=True)
class PlanFigures:
    """What a program would cost on a batch.

    Attributes:
        rows: rows that were planned, those that failed included.
        cache_tokens: size of the cache, None: unlimited.
        distinct_tokens: prompt tokens in the tree of all prompts, each place once (paper 4.4).
        needed_tokens: those of them that no output holds: the least that can be computed.
        num_evicted: tokens that the cache gave up.
        tree, records, counts, tokenizer: what the report draws.
    """

    program: str
    model: str
    rows: int
    failed: tuple[FailedRow, ...]
    cache_tokens: int | None
    parts: tuple[PartPlan, ...]
    total: PartCounts
    unlimited_computed_tokens: int
    distinct_tokens: int
    needed_tokens: int
    num_evicted: int
    prices: PriceTable
    tree: PrefixTree
    records: Sequence[Record]
    counts: Counts
    tokenizer: Tokenizer

    @property
    def optimal_hit_rate(self) -> float:
        """The hit rate of a depth-first order with outputs kept: no order and no cache has more."""
        prompt = self.total.prompt_tokens
        return 1 - self.needed_tokens / prompt if prompt else 0.0

    @property
    def costs(self) -> tuple[ModelCost, ...]:
        """The price at each model of the table."""
        total = self.total
        return tuple(
            ModelCost(
                model.name,
                model.price(total.prompt_tokens, 0, total.generated_tokens),
                model.price(total.computed_tokens, total.cached_tokens, total.generated_tokens),
            )
            for model in self.prices.models
        )

    @property
    def read_names(self) -> tuple[str, ...]:
        """Variables that the program reads: its course may depend on what is assumed for them."""
        return tuple(dict.fromkeys(part.name for part in self.parts if part.is_read))

    def to_json(self) -> dict[str, Any]:
        """Everything but the tree, as JSON values."""
        return {
            "program": self.program,
            "model": self.model,
            "rows": self.rows,
            "failed": [{"row": failed.row, "error": failed.error} for failed in self.failed],
            "cache_tokens": self.cache_tokens,
            "parts": [
                {
                    "name": part.name,
                    "place": part.place,
                    "kind": part.kind,
                    **_counted(part.counts),
                    "assumed": part.assumed,
                    "is_read": part.is_read,
                }
                for part in self.parts
            ],
            "total": _counted(self.total),
            "unlimited_computed_tokens": self.unlimited_computed_tokens,
            "distinct_prompt_tokens": self.distinct_tokens,
            "needed_prompt_tokens": self.needed_tokens,
            "optimal_hit_rate": round(self.optimal_hit_rate, 6),
            "evicted_tokens": self.num_evicted,
            "prices": {
                "source": self.prices.source,
                "currency": self.prices.currency,
                "date": self.prices.date,
                "models": {
                    cost.model: {
                        "without_sharing": round(cost.unshared, 6),
                        "with_cache": round(cost.shared, 6),
                    }
                    for cost in self.costs
                },
            },
        }


def _counted(counts: PartCounts) -> dict[str, Any]:
    return {
        "requests": counts.requests,
        "prompt_tokens": counts.prompt_tokens,
        "cached_tokens": counts.cached_tokens,
        "computed_tokens": counts.computed_tokens,
        "hit_rate": round(counts.hit_rate, 6),
        "forced_tokens": counts.forced_tokens,
        "generated_tokens": counts.generated_tokens,
    }


def part_names(sites: Sequence[CallSite | None]) -> list[tuple[str, str]]:
    """Name and place of parts, as people read them."""
    return [
        ("other calls", "")
        if site is None
        else (
            site.variable or "(unnamed)",
            "" if site.file is None else f"{Path(site.file).name}:{site.line}",
        )
        for site in sites
    ]
