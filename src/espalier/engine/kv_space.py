"""KV memory as requests see it: cached prefixes and running sequences in one pool.

It owns the pool and the radix tree and moves slots between them. Order and policy it must not
know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from espalier.engine.kv_pool import KvPool
from espalier.engine.radix_cache import RadixCache
from espalier.engine.radix_node import PrefixCursor, RadixNode
from espalier.engine.request_state import NO_LIMIT, RequestState


class KvSpace:
    """Slots of one engine. Without `prefix_cache` nothing is kept after a request (ablation)."""

    def __init__(self, num_slots: int, prefix_cache: bool = True) -> None:
        self.pool = KvPool(num_slots)
        self.cache = RadixCache()
        self._keeps = prefix_cache

    @property
    def num_available(self) -> int:
        """Slots that a request may get: free ones, and cached tokens that nobody uses."""
        return self.pool.num_free + self.cache.num_evictable

    def peek(self, state: RequestState) -> int:
        """Tokens of a waiting request that are cached and usable, looked up without a trace."""
        if not self._keeps:
            return 0
        limit = state.match_limit
        if state.cursor is None:
            known = state.token_ids[: state.num_tokens]
            state.cursor = PrefixCursor(state.request.namespace, known, limit)
        return self.cache.peek(state.cursor)

    def cost(self, state: RequestState) -> int:
        """By how much `num_available` falls when a request that was just peeked at is computed."""
        cursor = state.cursor
        if cursor is None:
            return state.num_tokens
        unlocked = self.cache.num_matched_evictable(cursor)
        return state.num_tokens - cursor.num_matched + unlocked

    def open(self, state: RequestState) -> None:
        """Gives a request its cached prefix, locked, and no other slot yet."""
        known = state.token_ids[: state.num_tokens]
        limit = state.match_limit if self._keeps else 0
        match = self.cache.match(state.request.namespace, known, limit)
        self.cache.lock(match.node)
        length = match.node.end
        state.cursor = None
        state.node = match.node
        # The last token that it may generate is never computed.
        state.slot_ids = np.empty(state.num_tokens + max(0, state.num_new_left - 1), np.int32)
        state.slot_ids[:length] = match.slot_ids
        state.num_shared = state.num_allocated = state.num_computed = length

    def grow(self, targets: Sequence[tuple[RequestState, int]]) -> bool:
        """Gives each request slots up to its position `end`, evicting what it takes.

        False, and nothing is changed, where even that does not make enough room.
        """
        count = sum(end - state.num_allocated for state, end in targets)
        missing = count - self.pool.num_free
        if missing > self.cache.num_evictable:
            return False
        if missing > 0:
            self.pool.free(self.cache.evict(missing))
        slot_ids = self.pool.alloc(count)
        assert slot_ids is not None, "slots were evicted and are not there"
        used = 0
        for state, end in targets:
            start = state.num_allocated
            if end == start + 1:  # a decode row: slices make a step of 64 rows 5 % slower
                state.slot_ids[start] = slot_ids[used]
            else:
                state.slot_ids[start:end] = slot_ids[used : used + end - start]
            used += end - start
            state.num_allocated = end
        return True

    def commit(self, state: RequestState) -> None:
        """Puts a request's computed tokens into the tree, for others to use.

        Tokens that were replaced since they were computed are left out. Where another request was
        faster, its slots are taken and the own ones freed: both hold the same bits.
        """
        end = min(state.num_computed, state.num_valid)
        if not self._keeps or end <= state.num_shared:
            return
        assert state.node is not None
        start = state.num_shared
        insertion = self.cache.insert(state.node, state.token_ids[:end], state.slot_ids[:end])
        count = len(insertion.shared_slot_ids)
        if count:
            self.pool.free(state.slot_ids[start : start + count])
            state.slot_ids[start : start + count] = insertion.shared_slot_ids
        state.node = insertion.node
        state.num_shared = end

    def roll_back(self, state: RequestState, num_computed: int) -> None:
        """Forgets what a request computed after its first `num_computed` tokens, if anything.

        Needed where its tokens were replaced. What the tree holds of it stays there for others,
        unlocked.
        """
        state.num_valid = NO_LIMIT
        if state.num_computed <= num_computed:
            return
        if num_computed < state.num_shared:
            held = state.node
            assert held is not None
            state.node = self.cache.shorten(held, num_computed)
            self.pool.free(state.slot_ids[state.num_shared : state.num_allocated])
            state.num_shared = state.num_allocated = num_computed
        else:
            self.pool.free(state.slot_ids[num_computed : state.num_allocated])
            state.num_allocated = num_computed
        state.num_computed = num_computed
        state.num_to_prefill = min(state.num_to_prefill, num_computed)

    def close(self, state: RequestState) -> None:
        """Keeps what a request has computed as evictable and frees its other slots."""
        self.commit(state)
        assert state.node is not None
        self.cache.unlock(state.node)
        self.pool.free(state.slot_ids[state.num_shared : state.num_allocated])
        state.node = None
        state.slot_ids = state.slot_ids[:0].copy()
        state.num_shared = state.num_allocated = state.num_computed = 0

    def flush(self) -> bool:
        """Empties the cache of all that nobody uses; true if it is empty now."""
        self.pool.free(self.cache.evict(self.cache.num_evictable))
        return self.cache.num_locked == 0

    def check_invariants(self, running: Iterable[RequestState]) -> None:
        """Raises AssertionError unless each slot is free, cached or one request's own, once."""
        holders: dict[RadixNode, int] = {}
        used = []
        for state in running:
            node = state.node
            assert node is not None, "a running request holds no node"
            holders[node] = holders.get(node, 0) + 1
            assert node.end == state.num_shared <= state.num_computed <= state.num_allocated
            path = [part.slot_ids for part in node.path()]
            shared = np.concatenate(path) if path else state.slot_ids[:0]
            assert np.array_equal(shared, state.slot_ids[: state.num_shared]), "other slots"
            used.append(state.slot_ids[state.num_shared : state.num_allocated])
        self.pool.check_invariants()
        cached = self.cache.check_invariants(holders)
        every = np.sort(np.concatenate([self.pool.free_slot_ids(), cached, *used]))
        assert np.array_equal(every, np.arange(self.pool.num_slots)), "a slot is lost or used twice"
