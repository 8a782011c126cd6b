"""The simulated cache against the engine's own tree and pool, request by request."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.engine.kv_pool import KvPool
from espalier.engine.radix_cache import RadixCache
from espalier.engine.radix_node import RadixNode
from espalier.exec.executor import Int32Array
from espalier.plan.cache_run import CacheRun
from espalier.plan.prefix_tree import PrefixTree

Ids = tuple[int, ...]
tokens = st.integers(0, 2)
sequences = st.lists(tokens, min_size=1, max_size=10).map(tuple)
requests = st.lists(
    st.tuples(sequences, st.lists(tokens, max_size=4).map(tuple)), min_size=1, max_size=25
)


class EngineOracle:
    """Serves requests one after the other on the engine's RadixCache and KvPool."""

    def __init__(self, capacity: int) -> None:
        self.cache, self.pool = RadixCache(), KvPool(capacity)

    def serve(self, prompt: Ids, limit: int, output: Ids) -> int:
        ids = np.array(prompt + output, dtype=np.int32)
        match = self.cache.match("", ids[: len(prompt)], limit)
        self.cache.lock(match.node)
        length = match.node.end
        slots = np.empty(len(ids), np.int32)
        slots[:length] = match.slot_ids
        slots[length : len(prompt)] = self.alloc(len(prompt) - length)
        node = self.insert(match.node, ids[: len(prompt)], slots, length)
        for position in range(len(prompt), len(ids)):
            slots[position : position + 1] = self.alloc(1)
        node = self.insert(node, ids, slots, len(prompt))
        self.cache.unlock(node)
        self.cache.check_invariants({})
        return length

    def alloc(self, count: int) -> Int32Array:
        missing = count - self.pool.num_free
        if missing > 0:
            self.pool.free(self.cache.evict(missing))
        slots = self.pool.alloc(count)
        assert slots is not None
        return slots

    def insert(self, node: RadixNode, ids: Int32Array, slots: Int32Array, start: int) -> RadixNode:
        if len(ids) <= start:
            return node
        insertion = self.cache.insert(node, ids, slots[: len(ids)])
        count = len(insertion.shared_slot_ids)
        if count:
            self.pool.free(slots[start : start + count])
            slots[start : start + count] = insertion.shared_slot_ids
        return insertion.node


@dataclass
class Served:
    prompt: Ids
    limit: int
    output: Ids


def served_of(given_ids: list[tuple[Ids, Ids]], is_known_whole: bool) -> list[Served]:
    """Requests; those whose whole prompt is known before are left out unless they are wanted."""
    known: set[Ids] = set()
    found = []
    for prompt, output in given_ids:
        if is_known_whole or prompt not in known:
            found.append(Served(prompt, len(prompt) - 1, output))
        whole = prompt + output
        known |= {whole[:end] for end in range(len(whole) + 1)}
    return found


def run_both(served: list[Served], capacity: int | None) -> tuple[list[int], list[int]]:
    tree = PrefixTree()
    ends = [(tree.insert(one.prompt)[0], tree.insert(one.prompt + one.output)[0]) for one in served]
    run = CacheRun(capacity)
    found = [
        run.serve(prompt, one.limit, end) for (prompt, end), one in zip(ends, served, strict=True)
    ]
    oracle = EngineOracle(100_000 if capacity is None else capacity)
    expected = [oracle.serve(one.prompt, one.limit, one.output) for one in served]
    return found, expected


@given(requests)
def test_an_unlimited_cache_finds_what_the_engine_finds(given_ids: list[tuple[Ids, Ids]]) -> None:
    found, expected = run_both(served_of(given_ids, True), None)
    assert found == expected


@given(requests, st.integers(14, 60))
@settings(max_examples=300)
def test_a_small_cache_evicts_what_the_engine_evicts(
    given_ids: list[tuple[Ids, Ids]], capacity: int
) -> None:
    found, expected = run_both(served_of(given_ids, False), capacity)
    assert found == expected


@pytest.mark.parametrize("seed", range(20))
def test_depth_first_order_costs_each_place_once(seed: int) -> None:
    """The paper's theorem: a cache as large as the longest request is enough in that order."""
    rng = random.Random(seed)
    prompts = sorted({tuple(rng.choices(range(3), k=rng.randint(1, 12))) for _ in range(60)})
    tree = PrefixTree()
    ends = [tree.insert(prompt)[0] for prompt in prompts]
    distinct = sum(len(node.ids) for node in tree.nodes())
    longest = max(map(len, prompts))
    run = CacheRun(longest)
    # In sorted order a prefix comes before what goes on from it, so that nothing is known whole.
    assert sum(end.end - run.serve(end, end.end) for end in ends) == distinct
    tree.forget_cache()
    shuffled = CacheRun(longest)
    rng.shuffle(ends)
    assert sum(end.end - shuffled.serve(end, end.end) for end in ends) > distinct
