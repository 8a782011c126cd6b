"""The radix tree against a list of single tokens that is scanned from end to end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from espalier.engine.radix_cache import MAX_QUEUE_SLACK, RadixCache
from espalier.engine.radix_node import PrefixCursor, RadixNode
from espalier.exec.executor import Int32Array


def ids(*values: int) -> Int32Array:
    return np.array(values, dtype=np.int32)


def add(cache: RadixCache, tokens: Int32Array, slots: Int32Array, namespace: str = "") -> int:
    """Inserts as a finished request does; returns how many tokens were cached before."""
    match = cache.match(namespace, tokens, len(tokens))
    cache.lock(match.node)
    insertion = cache.insert(match.node, tokens, slots)
    cache.unlock(insertion.node)
    return len(match.slot_ids)


def found(cache: RadixCache, tokens: Int32Array, namespace: str = "") -> list[int]:
    """Slots of the cached prefix, looked up without a trace."""
    match = cache.match(namespace, tokens, len(tokens))
    cache.lock(match.node)
    cache.unlock(match.node)
    slot_ids: list[int] = match.slot_ids.tolist()
    return slot_ids


def test_match_finds_longest_prefix_across_a_split() -> None:
    cache = RadixCache()
    add(cache, ids(1, 2, 3, 4), ids(10, 11, 12, 13))
    assert add(cache, ids(1, 2, 8, 9), ids(10, 11, 14, 15)) == 2
    assert found(cache, ids(1, 2, 3, 7)) == [10, 11, 12]
    assert found(cache, ids(1, 2, 8, 9, 9)) == [10, 11, 14, 15]
    assert found(cache, ids(2, 1)) == []
    cache.check_invariants({})


def test_match_stops_at_the_limit() -> None:
    cache = RadixCache()
    add(cache, ids(1, 2, 3), ids(5, 6, 7))
    match = cache.match("", ids(1, 2, 3), 2)
    assert match.slot_ids.tolist() == [5, 6]
    assert match.node.end == 2


def test_insert_hands_back_the_slots_of_tokens_known_before() -> None:
    cache = RadixCache()
    first = cache.match("", ids(1, 2, 3), 0)
    cache.lock(first.node)
    second = cache.match("", ids(1, 2, 4), 0)
    cache.lock(second.node)
    one = cache.insert(first.node, ids(1, 2, 3), ids(5, 6, 7))
    two = cache.insert(second.node, ids(1, 2, 4), ids(8, 9, 4))
    assert one.shared_slot_ids.tolist() == []
    assert two.shared_slot_ids.tolist() == [5, 6]
    cache.check_invariants({one.node: 1, two.node: 1})
    assert found(cache, ids(1, 2, 4)) == [5, 6, 4]


def test_namespaces_share_nothing_and_vanish_when_empty() -> None:
    cache = RadixCache()
    add(cache, ids(1, 2), ids(0, 1), "a")
    assert found(cache, ids(1, 2), "b") == []
    add(cache, ids(1, 2), ids(2, 3), "b")
    assert found(cache, ids(1, 2), "a") == [0, 1]
    assert sorted(cache.evict(9).tolist()) == [0, 1, 2, 3]
    cache.check_invariants({})  # fails for a namespace without tokens


def test_evict_trims_the_tail_of_the_least_recently_used_leaf() -> None:
    cache = RadixCache()
    add(cache, ids(1, 2, 3, 4), ids(1, 2, 3, 4))
    add(cache, ids(1, 2, 5, 6), ids(1, 2, 5, 6))
    found(cache, ids(1, 2, 3, 4))  # now 5, 6 are the older leaf
    assert cache.evict(1).tolist() == [6]
    assert cache.evict(2).tolist() == [5, 4]
    assert found(cache, ids(1, 2, 3)) == [1, 2, 3]
    assert cache.evict(9).tolist() == [3, 1, 2]
    assert (cache.num_evictable, cache.num_locked, cache.num_nodes) == (0, 0, 0)


def test_evict_spares_a_locked_path() -> None:
    cache = RadixCache()
    add(cache, ids(1, 2, 3, 4), ids(1, 2, 3, 4))
    node = cache.match("", ids(1, 2), 2).node
    cache.lock(node)
    assert cache.evict(9).tolist() == [3, 4]
    assert (cache.num_evictable, cache.num_locked) == (0, 2)
    cache.unlock(node)
    assert cache.num_evictable == 2
    with pytest.raises(ValueError, match="unlocked"):
        cache.unlock(node)


def test_a_hit_refreshes_the_whole_path() -> None:
    cache = RadixCache()
    add(cache, ids(1, 2), ids(1, 2))
    add(cache, ids(1, 2, 3), ids(1, 2, 3))
    add(cache, ids(7, 8), ids(7, 8))
    found(cache, ids(1, 2, 3))
    assert cache.evict(2).tolist() == [7, 8]


def test_growing_chunk_by_chunk_keeps_one_node() -> None:
    cache = RadixCache()
    tokens = np.arange(100, dtype=np.int32)
    node = cache.match("", tokens, 99).node
    cache.lock(node)
    for end in range(1, 101):
        node = cache.insert(node, tokens[:end], tokens[:end]).node
    assert cache.num_nodes == 1
    cache.check_invariants({node: 1})


def test_eviction_queue_stays_bounded_when_leaves_are_replaced_for_ever() -> None:
    cache = RadixCache()
    for turn in range(2000):
        tokens = ids(1, *([2] * (turn % 7)), turn)
        add(cache, tokens, np.arange(len(tokens), dtype=np.int32) + turn * 8)
        node = cache.match("", tokens, len(tokens)).node
        cache.lock(node)
        cache.unlock(
            cache.insert(node, np.append(tokens, ids(3)), ids(*[turn * 8 + 7] * 9)[:9]).node
        )
        cache.evict(cache.num_evictable - 30)
        assert len(cache._queue) <= 2 * cache.num_nodes + MAX_QUEUE_SLACK + 1


def test_peek_changes_nothing() -> None:
    cache = RadixCache()
    add(cache, ids(1, 2, 3), ids(1, 2, 3))
    add(cache, ids(4, 5, 6), ids(4, 5, 6))
    cursor = PrefixCursor("", ids(1, 2, 9), 3)
    assert cache.peek(cursor) == 2
    assert cache.num_nodes == 2
    assert cache.evict(3).tolist() == [1, 2, 3]
    assert cache.peek(cursor) == 0


def test_trimming_one_token_at_a_time_frees_the_memory_of_a_long_leaf() -> None:
    cache = RadixCache()
    tokens = np.arange(10_000, dtype=np.int32)
    add(cache, tokens, tokens)
    for _ in range(9_900):
        cache.evict(1)
    node = cache.match("", tokens, 100).node
    base = node.token_ids.base if node.token_ids.base is not None else node.token_ids
    assert base.size <= 2 * 100 + 64


# --- against the naive oracle ---------------------------------------------------------------------

Key = tuple[str, tuple[int, ...]]


@dataclass
class Entry:
    """One cached token, known by all tokens up to it."""

    slot_id: int
    last_used: int
    num_locks: int = 0


class ListCache:
    """The same behaviour without a tree: one entry per token, found by scanning."""

    def __init__(self) -> None:
        self.entries: dict[Key, Entry] = {}
        self.clock = 0

    def prefix(self, namespace: str, tokens: tuple[int, ...], limit: int) -> int:
        length = 0
        while length < limit and (namespace, tokens[: length + 1]) in self.entries:
            length += 1
        return length

    def touch(self, namespace: str, tokens: tuple[int, ...]) -> None:
        self.clock += 1
        for end in range(1, len(tokens) + 1):
            self.entries[namespace, tokens[:end]].last_used = self.clock

    def change_locks(self, namespace: str, tokens: tuple[int, ...], change: int) -> None:
        for end in range(1, len(tokens) + 1):
            self.entries[namespace, tokens[:end]].num_locks += change

    def evict(self, count: int) -> list[int]:
        freed = []
        for _ in range(count):
            inner = {(name, tokens[:-1]) for name, tokens in self.entries}
            tails = [
                (entry.last_used, key)
                for key, entry in self.entries.items()
                if entry.num_locks == 0 and key not in inner
            ]
            if not tails:
                break
            freed.append(self.entries.pop(min(tails)[1]).slot_id)
        return freed


TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)
NAMES = st.sampled_from(["", "tenant"])


class RadixMachine(RuleBasedStateMachine):
    """Random matches, growth, releases and evictions; tree and list must never differ."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = RadixCache()
        self.oracle = ListCache()
        self.next_slot = 0
        # requests that run: namespace, held tokens, node
        self.running: list[tuple[str, tuple[int, ...], RadixNode]] = []
        self.cursors: list[tuple[str, tuple[int, ...], PrefixCursor]] = []

    @rule(namespace=NAMES, tokens=TOKENS, spare=st.integers(0, 2))
    def start(self, namespace: str, tokens: tuple[int, ...], spare: int) -> None:
        limit = max(0, len(tokens) - spare)
        match = self.cache.match(namespace, ids(*tokens), limit)
        self.cache.lock(match.node)
        length = self.oracle.prefix(namespace, tokens, limit)
        held = tokens[:length]
        self.oracle.touch(namespace, held)
        self.oracle.change_locks(namespace, held, +1)
        assert match.slot_ids.tolist() == [
            self.oracle.entries[namespace, tokens[:end]].slot_id for end in range(1, length + 1)
        ]
        assert match.node.end == length
        self.running.append((namespace, held, match.node))

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data(), more=TOKENS)
    def grow(self, data: st.DataObject, more: tuple[int, ...]) -> None:
        which = data.draw(st.integers(0, len(self.running) - 1))
        namespace, held, node = self.running[which]
        tokens = held + more
        own = list(range(self.next_slot, self.next_slot + len(tokens)))
        self.next_slot += len(tokens)
        insertion = self.cache.insert(node, ids(*tokens), ids(*own))
        known = self.oracle.prefix(namespace, tokens, len(tokens))
        assert insertion.shared_slot_ids.tolist() == [
            self.oracle.entries[namespace, tokens[:end]].slot_id
            for end in range(len(held) + 1, known + 1)
        ]
        for end in range(known + 1, len(tokens) + 1):
            self.oracle.entries[namespace, tokens[:end]] = Entry(own[end - 1], 0)
        self.oracle.touch(namespace, tokens)
        self.oracle.change_locks(namespace, held, -1)
        self.oracle.change_locks(namespace, tokens, +1)
        self.running[which] = (namespace, tokens, insertion.node)

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        which = data.draw(st.integers(0, len(self.running) - 1))
        namespace, held, node = self.running.pop(which)
        self.cache.unlock(node)
        self.oracle.change_locks(namespace, held, -1)

    @rule(count=st.integers(0, 12))
    def evict(self, count: int) -> None:
        freed = self.cache.evict(count).tolist()
        # Within one leaf the tree hands out a tail in order of position, the list from its end.
        assert sorted(freed) == sorted(self.oracle.evict(count))

    @rule(namespace=NAMES, tokens=TOKENS)
    def wait(self, namespace: str, tokens: tuple[int, ...]) -> None:
        limit = len(tokens)
        self.cursors.append((namespace, tokens, PrefixCursor(namespace, ids(*tokens), limit)))
        del self.cursors[:-6]

    @invariant()
    def cursors_see_the_longest_prefix(self) -> None:
        for namespace, tokens, cursor in self.cursors:
            length = self.oracle.prefix(namespace, tokens, len(tokens))
            assert self.cache.peek(cursor) == length
            assert self.cache.num_matched_evictable(cursor) == sum(
                self.oracle.entries[namespace, tokens[:end]].num_locks == 0
                for end in range(1, length + 1)
            )

    @invariant()
    def tree_is_sound_and_holds_what_the_list_holds(self) -> None:
        holders: dict[RadixNode, int] = {}
        for _, _, node in self.running:
            holders[node] = holders.get(node, 0) + 1
        slots = self.cache.check_invariants(holders)
        assert sorted(slots.tolist()) == sorted(e.slot_id for e in self.oracle.entries.values())
        locked = sum(entry.num_locks > 0 for entry in self.oracle.entries.values())
        assert self.cache.num_locked == locked


TestRadixMachine = RadixMachine.TestCase
TestRadixMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
