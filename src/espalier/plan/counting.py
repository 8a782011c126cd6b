"""From the requests of a planned run to counts per program part, for a cache of a given size.

Counts are those of backends/local.py: a prompt that samples or choices share counts once, and the
prompt computed for forks in advance counts for the calls that find it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from espalier.backends.base import CallSite
from espalier.plan.cache_run import CacheRun
from espalier.plan.prefix_tree import PrefixNode
from espalier.plan.request_log import GenerateRecord, PrefillRecord, Record, RequestLog, ScoreRecord

MAX_PARTS = 1000  # more call sites than that are counted together


@dataclass(slots=True)
class PartCounts:
    """Counts of one call site, or of all together; tokens but for `requests`."""

    requests: int = 0
    prompt_tokens: int = 0  # without any sharing
    computed_tokens: int = 0  # with the cache
    forced_tokens: int = 0
    generated_tokens: int = 0

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the cache gives."""
        return self.prompt_tokens - self.computed_tokens

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens / prompt tokens; 0 without a prompt."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def add(self, other: PartCounts) -> None:
        """Adds the counts of `other`."""
        self.requests += other.requests
        self.prompt_tokens += other.prompt_tokens
        self.computed_tokens += other.computed_tokens
        self.forced_tokens += other.forced_tokens
        self.generated_tokens += other.generated_tokens


@dataclass(slots=True)
class Counts:
    """What a planned run costs.

    Attributes:
        parts: by call site, in the order of their first request; None stands for those beyond
            MAX_PARTS and for calls that tell no place.
        kinds: "gen" or "select" of each part.
        num_evicted: tokens that the cache gave up.
        flow: how often a part went on from what another one left, by (before, after); before is
            None where a prompt begins with constants alone.
    """

    parts: dict[CallSite | None, PartCounts] = field(default_factory=dict)
    kinds: dict[CallSite | None, str] = field(default_factory=dict)
    num_evicted: int = 0
    flow: Counter[tuple[CallSite | None, CallSite | None]] = field(default_factory=Counter)

    def total(self) -> PartCounts:
        """The sum over the parts."""
        total = PartCounts()
        for counts in self.parts.values():
            total.add(counts)
        return total


def count(log: RequestLog, capacity: int | None) -> Counts:
    """Runs the requests through a cache of `capacity` tokens (None: unlimited)."""
    cache = CacheRun(capacity)
    counts = Counts()
    row, in_advance = -1, 0  # tokens computed for forks, which no call has answered for
    for record in log.records:
        if record.row != row:
            row, in_advance = record.row, 0
        if isinstance(record, PrefillRecord):
            in_advance += record.prompt.end - cache.serve(record.prompt, record.prompt.end - 1)
            continue
        found = (
            _generated(cache, record)
            if isinstance(record, GenerateRecord)
            else _scored(cache, record)
        )
        moved = min(in_advance, found.cached_tokens)
        in_advance -= moved
        found.computed_tokens += moved
        site = record.site
        if site not in counts.parts and len(counts.parts) >= MAX_PARTS:
            site = None
        counts.parts.setdefault(site, PartCounts()).add(found)
        kind = "gen" if isinstance(record, GenerateRecord) else "select"
        counts.kinds.setdefault(site, kind)
    counts.num_evicted = cache.num_evicted
    counts.flow = _flow(log.records, counts.parts)
    return counts


def _generated(cache: CacheRun, record: GenerateRecord) -> PartCounts:
    matched = [cache.serve(record.prompt, end.limit, end.node) for end in record.samples]
    return PartCounts(
        1,
        record.num_prompt,
        record.num_prompt - min(matched),
        record.num_forced,
        record.num_generated,
    )


def _scored(cache: CacheRun, record: ScoreRecord) -> PartCounts:
    computed = record.num_scored
    if record.shared is not None:
        computed += record.num_shared - cache.serve(record.shared, record.num_shared - 1)
    for node in record.sequences:
        cache.serve(node, node.end - 1)
    return PartCounts(1, record.num_shared + record.num_own, computed)


def _flow(
    records: Iterable[Record], parts: dict[CallSite | None, PartCounts]
) -> Counter[tuple[CallSite | None, CallSite | None]]:
    """Which part each call of a row goes on from: the last one that ended on its prompt's path."""
    flow: Counter[tuple[CallSite | None, CallSite | None]] = Counter()
    row = -1
    ends: dict[PrefixNode, CallSite | None] = {}
    for record in records:
        if record.row != row:
            row, ends = record.row, {}
        if isinstance(record, PrefillRecord):
            continue
        site = record.site if record.site in parts else None
        if isinstance(record, GenerateRecord):
            prompt: PrefixNode | None = record.prompt
            left: tuple[PrefixNode, ...] = tuple(end.node for end in record.samples)
        else:
            prompt = record.shared
            left = record.sequences if record.shared is None else (*record.sequences, record.shared)
        flow[_before(prompt, ends), site] += 1
        for node in left:
            ends[node] = site
    return flow


def _before(node: PrefixNode | None, ends: dict[PrefixNode, CallSite | None]) -> CallSite | None:
    while node is not None:
        if node in ends:
            return ends[node]
        node = node.parent
    return None
