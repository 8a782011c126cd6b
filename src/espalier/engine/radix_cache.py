"""RadixAttention's tree: which token sequences have their KV in which slots.

Paper section 4.1, with page size one and eviction of leaf tails. It owns token ids and slot ids,
ints only. The pool, the KV arrays and the requests it must not know: a caller finds slots by
`match`, keeps them from eviction by `lock`, gives slots by `insert` and gets them from `evict`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from espalier.engine.radix_check import check_tree
from espalier.engine.radix_node import PrefixCursor, RadixNode, common_length, without_tail
from espalier.exec.executor import Int32Array

_NO_SLOTS: Int32Array = np.empty(0, dtype=np.int32)
MAX_QUEUE_SLACK = 64  # dead entries that the eviction queue may hold beyond one per node


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix: its end in the tree and its slots, `[matched tokens]`."""

    node: RadixNode
    slot_ids: Int32Array


@dataclass(frozen=True, slots=True)
class Insertion:
    """What `insert` did: the end of the sequence, and the tree's slots of tokens it knew already.

    `shared_slot_ids`, `[tokens]`, stand for the tokens right after the held node's; the slots that
    the caller gave for those tokens stay the caller's.
    """

    node: RadixNode
    shared_slot_ids: Int32Array


def _joined(parts: list[Int32Array]) -> Int32Array:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else _NO_SLOTS


class RadixCache:
    """Maps (namespace, token sequence) to slots; least recently used leaf tails go first.

    `num_evictable + num_locked` is the number of tokens held. A hit refreshes its whole path.
    """

    def __init__(self) -> None:
        self._roots: dict[str, RadixNode] = {}
        self._queue: list[tuple[int, int, RadixNode]] = []  # (last_used when queued, serial, leaf)
        self._clock = 0
        self._last_serial = 0
        self.num_evictable = 0
        self.num_locked = 0
        self.num_nodes = 0  # without roots

    def peek(self, cursor: PrefixCursor) -> int:
        """Length of the longest cached prefix, at most `cursor.limit`.

        It moves the cursor and changes nothing in the tree: no split, no refresh.
        """
        node = cursor.node
        while node is not None and (not node.is_alive or node.end > cursor.limit):
            node = node.parent
        if node is None:
            node = self._roots.get(cursor.namespace)
        cursor.node, cursor.partial, cursor.num_matched = node, None, 0
        if node is None:
            return 0
        token_ids, limit = cursor.token_ids, cursor.limit
        position = node.end
        while position < limit:
            child = node.children.get(token_ids.item(position))
            if child is None:
                break
            shared = common_length(child.token_ids, token_ids[position:limit])
            position += shared
            if shared < len(child.token_ids):
                cursor.partial = child
                break
            node = child
        cursor.node, cursor.num_matched = node, position
        return position

    def num_matched_evictable(self, cursor: PrefixCursor) -> int:
        """How many of the tokens that `peek` has just matched are not locked."""
        node, unlocked = cursor.node, 0
        if node is None:
            return 0
        if cursor.partial is not None and cursor.partial.num_locks == 0:
            unlocked = cursor.num_matched - node.end
        while node.parent is not None and node.num_locks == 0:
            unlocked += len(node.token_ids)
            node = node.parent
        return unlocked

    def match(self, namespace: str, token_ids: Int32Array, limit: int) -> Match:
        """Finds the longest cached prefix, at most `limit` tokens, and refreshes its path.

        Splits an edge that matches in part. Lock the node before anything else is evicted.
        """
        node = self._root(namespace)
        found: list[Int32Array] = []
        while node.end < limit:
            child = node.children.get(token_ids.item(node.end))
            if child is None:
                break
            shared = common_length(child.token_ids, token_ids[node.end : limit])
            node = child if shared == len(child.token_ids) else self._split(child, shared)
            found.append(node.slot_ids)
        self._touch(node)
        return Match(node, _joined(found))

    def insert(self, held: RadixNode, token_ids: Int32Array, slot_ids: Int32Array) -> Insertion:
        """Adds a sequence whose first `held.end` tokens end in `held`, which the caller has locked.

        The new tokens' slots now belong to the tree, and the caller's lock moves to the returned
        node: unlock that one, not `held`. Refreshes the path.
        """
        node = held
        shared_slots: list[Int32Array] = []
        total = len(token_ids)
        while node.end < total:
            child = node.children.get(token_ids.item(node.end))
            if child is None:
                break
            shared = common_length(child.token_ids, token_ids[node.end :])
            node = child if shared == len(child.token_ids) else self._split(child, shared)
            self._lock_one(node)
            shared_slots.append(node.slot_ids)
        if node.end < total:
            new_ids, new_slot_ids = token_ids[node.end :], slot_ids[node.end :]
            if node is held and node.is_leaf and node.num_locks == 1:
                node = self._extended(node, new_ids, new_slot_ids)
            else:
                node = self._add_locked_leaf(node, new_ids.copy(), new_slot_ids.copy())
        self._touch(node)
        return Insertion(node, _joined(shared_slots))

    def lock(self, node: RadixNode) -> None:
        """Keeps the node and all above it from eviction, once more."""
        step: RadixNode | None = node
        while step is not None:
            self._lock_one(step)
            step = step.parent

    def unlock(self, node: RadixNode) -> None:
        """Takes back one `lock`. Raises ValueError for a node that is not locked."""
        if node.num_locks < 1:
            raise ValueError("a node was unlocked more often than locked")
        step: RadixNode | None = node
        while step is not None:
            step.num_locks -= 1
            if step.num_locks == 0:
                self.num_evictable += len(step.token_ids)
                self.num_locked -= len(step.token_ids)
                self._queue_if_evictable(step)
            step = step.parent
        if node.parent is None:
            self._drop_root_if_unused(node)

    def shorten(self, held: RadixNode, length: int) -> RadixNode:
        """Moves a caller's lock from `held` up to the first `length` tokens of its path."""
        node = held
        while node.parent is not None and node.parent.end >= length:
            node = node.parent
        if node.end > length:
            assert node.parent is not None
            node = self._split(node, length - node.parent.end)
        self.lock(node)
        self.unlock(held)
        return node

    def evict(self, count: int) -> Int32Array:
        """Gives up `count` tokens, or all that are not locked; their slots, `[tokens]`.

        It trims the tail of the least recently used leaf that nobody locks, then of the next; a
        parent whose last child went is a leaf (paper section 4.1).
        """
        freed: list[Int32Array] = []
        missing = min(count, self.num_evictable)
        while missing > 0:
            queued_at, _, node = heapq.heappop(self._queue)
            node.is_queued = False
            if not node.is_alive or node.num_locks or not node.is_leaf:
                continue
            if queued_at == node.last_used:
                taken = min(missing, len(node.token_ids))
                freed.append(self._trim(node, taken))
                missing -= taken
            if node.is_alive:
                self._queue_if_evictable(node)
        return _joined(freed)

    def check_invariants(self, holders: dict[RadixNode, int] | None = None) -> Int32Array:
        """Raises AssertionError unless every count, link and order in the tree is right.

        `holders` says how often each node is locked; without it lock counts are checked only
        against each other. Returns all slots held, `[num_evictable + num_locked]`.
        """
        return check_tree(self, self._roots, self._queue, holders)

    def _root(self, namespace: str) -> RadixNode:
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = RadixNode.new_root(namespace)
        return root

    def _drop_root_if_unused(self, root: RadixNode) -> None:
        if not root.children and not root.num_locks and root.namespace is not None:
            del self._roots[root.namespace]
            root.is_alive = False

    def _lock_one(self, node: RadixNode) -> None:
        if node.num_locks == 0:
            self.num_evictable -= len(node.token_ids)
            self.num_locked += len(node.token_ids)
        node.num_locks += 1

    def _touch(self, node: RadixNode) -> None:
        self._clock += 1
        step: RadixNode | None = node
        while step is not None:
            step.last_used = self._clock
            step = step.parent

    def _split(self, node: RadixNode, length: int) -> RadixNode:
        """Puts the first `length` tokens of a node into a new parent of it, which is returned."""
        parent = node.parent
        assert parent is not None
        upper = RadixNode(parent, node.token_ids[:length].copy(), node.slot_ids[:length].copy())
        upper.num_locks, upper.last_used = node.num_locks, node.last_used
        self._register(upper)
        parent.children[upper.token_ids.item(0)] = upper
        node.token_ids = node.token_ids[length:].copy()
        node.slot_ids = node.slot_ids[length:].copy()
        node.parent = upper
        upper.children[node.token_ids.item(0)] = node
        return upper

    def _register(self, node: RadixNode) -> None:
        self._last_serial += 1
        node.serial = self._last_serial
        self.num_nodes += 1

    def _add_locked_leaf(
        self, parent: RadixNode, token_ids: Int32Array, slot_ids: Int32Array
    ) -> RadixNode:
        leaf = RadixNode(parent, token_ids, slot_ids)
        leaf.num_locks = 1
        self._register(leaf)
        parent.children[token_ids.item(0)] = leaf
        self.num_locked += len(token_ids)
        return leaf

    def _extended(self, leaf: RadixNode, token_ids: Int32Array, slot_ids: Int32Array) -> RadixNode:
        """A longer leaf in the place of one that only the caller holds.

        It is another node, as a cursor takes the tokens of a node for unchanged while it lives.
        """
        assert leaf.parent is not None
        self.num_locked -= len(leaf.token_ids)
        self.num_nodes -= 1
        leaf.is_alive = False
        return self._add_locked_leaf(
            leaf.parent,
            np.concatenate((leaf.token_ids, token_ids)),
            np.concatenate((leaf.slot_ids, slot_ids)),
        )

    def _trim(self, leaf: RadixNode, count: int) -> Int32Array:
        """Takes `count` tokens off the end of an unlocked leaf; removes it when it is empty."""
        kept = len(leaf.token_ids) - count
        slot_ids = leaf.slot_ids[kept:]
        self.num_evictable -= count
        leaf.end -= count
        if kept:
            leaf.token_ids = without_tail(leaf.token_ids, kept)
            leaf.slot_ids = without_tail(leaf.slot_ids, kept)
            return slot_ids
        parent = leaf.parent
        assert parent is not None
        del parent.children[leaf.token_ids.item(0)]
        leaf.is_alive = False
        self.num_nodes -= 1
        if parent.parent is not None:
            self._queue_if_evictable(parent)
        else:
            self._drop_root_if_unused(parent)
        return slot_ids

    def _queue_if_evictable(self, node: RadixNode) -> None:
        if node.is_queued or not node.is_leaf or node.num_locks:
            return
        node.is_queued = True
        heapq.heappush(self._queue, (node.last_used, node.serial, node))
        if len(self._queue) > 2 * self.num_nodes + MAX_QUEUE_SLACK:
            self._queue = [entry for entry in self._queue if entry[2].is_alive]
            heapq.heapify(self._queue)
