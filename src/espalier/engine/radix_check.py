"""Whether a radix tree is sound: every link, count and order, looked at one by one. For checks."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from espalier.engine.radix_node import RadixNode
from espalier.exec.executor import Int32Array


class TreeCounts(Protocol):
    """The counters that a tree keeps beside its nodes."""

    num_evictable: int
    num_locked: int
    num_nodes: int


def check_tree(
    counts: TreeCounts,
    roots: dict[str, RadixNode],
    queue: list[tuple[int, int, RadixNode]],
    holders: dict[RadixNode, int] | None,
) -> Int32Array:
    """Raises AssertionError for what is wrong; returns all slots that the tree holds."""
    nodes: list[RadixNode] = []
    for namespace, root in roots.items():
        assert root.parent is None, "a root has a parent"
        assert root.namespace == namespace, "a root stands under another name"
        assert root.end == 0, "a root has tokens"
        assert root.children or root.num_locks, f"namespace {namespace!r} is empty and still there"
        _check_below(root, nodes)
    _check_locks([*roots.values(), *nodes], holders)
    _check_counts(counts, nodes)
    _check_queue(nodes, queue)
    slot_ids = np.concatenate([node.slot_ids for node in nodes] or [np.empty(0, np.int32)])
    assert len(np.unique(slot_ids)) == len(slot_ids), "two cached tokens share a slot"
    return slot_ids


def _check_below(root: RadixNode, nodes: list[RadixNode]) -> None:
    pending = [root]
    while pending:
        node = pending.pop()
        assert node.is_alive, "a node in the tree is marked dead"
        for first, child in node.children.items():
            assert child.parent is node, "a child does not know its parent"
            assert len(child.token_ids) == len(child.slot_ids) > 0, "tokens and slots differ"
            assert child.token_ids.item(0) == first, "a child stands under another token"
            assert child.end == node.end + len(child.token_ids), "a node ends elsewhere"
            assert child.last_used <= node.last_used, "a hit did not refresh its whole path"
            assert child.namespace is None, "a node below a root has a namespace"
            nodes.append(child)
            pending.append(child)


def _check_locks(nodes: list[RadixNode], holders: dict[RadixNode, int] | None) -> None:
    for node in nodes:
        below = sum(child.num_locks for child in node.children.values())
        own = node.num_locks - below
        assert own >= 0, "a locked node has a parent that is locked less often"
        if holders is not None:
            assert own == holders.get(node, 0), "a lock without holder, or a holder without lock"
    if holders is not None:
        known = set(nodes)
        assert all(node in known for node in holders), "a node that is held is not in the tree"


def _check_counts(counts: TreeCounts, nodes: list[RadixNode]) -> None:
    evictable = sum(len(node.token_ids) for node in nodes if node.num_locks == 0)
    locked = sum(len(node.token_ids) for node in nodes if node.num_locks > 0)
    assert counts.num_evictable == evictable, f"{counts.num_evictable} evictable, not {evictable}"
    assert counts.num_locked == locked, f"{counts.num_locked} locked, not {locked}"
    assert counts.num_nodes == len(nodes), f"{counts.num_nodes} nodes counted, not {len(nodes)}"


def _check_queue(nodes: list[RadixNode], queue: list[tuple[int, int, RadixNode]]) -> None:
    queued = [node for _, _, node in queue]
    assert len(set(queued)) == len(queued), "a node is queued twice"
    for queued_at, _, node in queue:
        assert node.is_queued, "a queued node is not marked as queued"
        assert queued_at <= node.last_used, "a queued node was used before it was queued"
    members = set(queued)
    for node in nodes:
        assert node.is_queued == (node in members), "a node is marked as queued and is not"
        if node.is_leaf and node.num_locks == 0:
            assert node in members, "an evictable leaf is not queued"
