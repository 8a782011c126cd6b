"""What an engine has done and holds: counts for reports, servers and tests."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class EngineTotals:
    """Counts since the start.

    `prompt_tokens` and `cached_tokens` are those of started requests, each counted once, at its
    first admission. `computed_rows` are token rows that the executor ran: prompt and output, and
    anew after a retraction. `generated_tokens` are all output tokens of ended requests;
    `forced_tokens` are those of them that the model was not asked for.
    """

    steps: int = 0
    requests_finished: int = 0
    requests_failed: int = 0
    requests_cancelled: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    forced_tokens: int = 0
    computed_rows: int = 0
    retractions: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """One look at an engine. `slots_*` add up: free + evictable + locked = total.

    Attributes:
        slots_locked: slots of running requests, shared or their own.
        cache_nodes: nodes of the radix tree.
    """

    waiting: int = 0
    running: int = 0
    slots_total: int = 0
    slots_free: int = 0
    slots_evictable: int = 0
    slots_locked: int = 0
    cache_nodes: int = 0
    totals: EngineTotals = field(default_factory=EngineTotals)

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens / prompt tokens (paper section 3); 0 without a prompt."""
        totals = self.totals
        return totals.cached_tokens / totals.prompt_tokens if totals.prompt_tokens else 0.0
