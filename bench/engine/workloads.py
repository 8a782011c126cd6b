"""What compare.py measures, and the bar that each ratio stands beside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.peers.catalog import GEMMA3, SMOLLM2
from bench.peers.protocol import Setup

_SHARED_PREFIX = 2000
_OWN_SUFFIX = 16
_BLOCK_SLACK = 64  # caches hand out whole blocks


@dataclass(frozen=True)
class Workload:
    """One figure, in tokens per second of all rows together.

    Attributes:
        name: for tables and for `--work`.
        model: alias of the model.
        rows: sequences at a time.
        context: prompt tokens of each.
        num_tokens: decoded tokens of each in the clock; 0 measures the prefill.
        shared: leading prompt tokens that all rows have in common.
        bar: least ratio of Espalier to the best peer.
        against: peers that count for the ratio; empty for all.
    """

    name: str
    model: str
    rows: int
    context: int
    num_tokens: int
    bar: float
    shared: int = 0
    against: tuple[str, ...] = ()

    @property
    def is_prefill(self) -> bool:
        """True where the prompt is in the clock, false where decoding is."""
        return self.num_tokens == 0

    def setup(self, model: str, num_threads: int) -> Setup:
        """What a peer must be started for to do this work."""
        longest = self.context + self.num_tokens + 8
        own = self.rows * (longest - self.shared + _BLOCK_SLACK)
        return Setup(
            model=model,
            num_threads=num_threads,
            max_rows=self.rows,
            max_context=longest + _BLOCK_SLACK,
            kv_tokens=self.shared + own + _BLOCK_SLACK,
            prefix_cache=not self.is_prefill,
            shares_prefix=self.shared > 0,
        )


_LLAMA = ("llamacpp", "xllamacpp")
WORKLOADS: tuple[Workload, ...] = (
    Workload("prefill-512", SMOLLM2, 1, 512, 0, 2.0),
    Workload("prefill-2048", SMOLLM2, 1, 2048, 0, 2.0),
    Workload("decode-1", SMOLLM2, 1, 128, 48, 1.8),
    Workload("decode-1-context-4000", SMOLLM2, 1, 4000, 32, 3.0),
    Workload("decode-16", SMOLLM2, 16, 128, 32, 3.0),
    Workload("decode-64", SMOLLM2, 64, 128, 24, 2.5),
    Workload(
        "shared-16", SMOLLM2, 16, _SHARED_PREFIX + _OWN_SUFFIX, 32, 3.5, shared=_SHARED_PREFIX
    ),
    Workload(
        "shared-64", SMOLLM2, 64, _SHARED_PREFIX + _OWN_SUFFIX, 24, 3.0, shared=_SHARED_PREFIX
    ),
    Workload("gemma3-prefill-512", GEMMA3, 1, 512, 0, 4.0, against=_LLAMA),
    Workload("gemma3-prefill-2048", GEMMA3, 1, 2048, 0, 4.0, against=_LLAMA),
    Workload("gemma3-decode-1", GEMMA3, 1, 128, 48, 1.5, against=_LLAMA),
)


def groups(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """Workloads that one start of a peer serves: rounds alternate inside a group."""
    found: dict[tuple[object, ...], list[Workload]] = {}
    for work in workloads:
        key = (work.model, work.is_prefill, work.rows > 1, work.shared > 0)
        found.setdefault(key, []).append(work)
    return list(found.values())


def joint_setup(setups: Sequence[Setup]) -> Setup:
    """One setup that is large enough for several; they must agree in all that is no size."""
    first = setups[0]
    assert all(
        (setup.model, setup.num_threads, setup.prefix_cache)
        == (first.model, first.num_threads, first.prefix_cache)
        for setup in setups
    )
    return Setup(
        model=first.model,
        num_threads=first.num_threads,
        max_rows=max(setup.max_rows for setup in setups),
        max_context=max(setup.max_context for setup in setups),
        kv_tokens=max(setup.kv_tokens for setup in setups),
        prefix_cache=first.prefix_cache,
        shares_prefix=any(setup.shares_prefix for setup in setups),
    )
