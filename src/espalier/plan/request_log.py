"""What a planned run asked for, in order: the requests as places in the prefix tree.

A record that the backend writes and the counting reads. It decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from espalier.backends.base import CallSite
from espalier.plan.prefix_tree import PrefixNode, PrefixTree


@dataclass(frozen=True, slots=True)
class SampleEnd:
    """One sample of a generation: where its computed tokens end, and what may come from the cache.

    `limit` is the most leading tokens that the cache may give.
    """

    node: PrefixNode
    limit: int


@dataclass(frozen=True, slots=True)
class GenerateRecord:
    """A generation of one row."""

    row: int
    site: CallSite | None
    prompt: PrefixNode
    num_prompt: int
    samples: tuple[SampleEnd, ...]
    num_generated: int
    num_forced: int


@dataclass(frozen=True, slots=True)
class ScoreRecord:
    """A selection of one row: its prompt, and the prompt with each choice.

    `num_own` are the tokens of all choices, `num_scored` what computing them takes with what they
    share computed once (backends/scoring.py).
    """

    row: int
    site: CallSite | None
    shared: PrefixNode | None
    num_shared: int
    sequences: tuple[PrefixNode, ...]
    num_own: int
    num_scored: int


@dataclass(frozen=True, slots=True)
class PrefillRecord:
    """The prompt that the forks of a row share, computed for them in advance."""

    row: int
    prompt: PrefixNode


Record = GenerateRecord | ScoreRecord | PrefillRecord


@dataclass(slots=True)
class RequestLog:
    """The tree of all requests, and the records in the order in which they came."""

    tree: PrefixTree = field(default_factory=PrefixTree)
    records: list[Record] = field(default_factory=list)
    row: int = 0  # whose requests come now
