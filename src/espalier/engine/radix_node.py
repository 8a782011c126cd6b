"""A node of the radix tree, a reader's place in the tree, and how two token runs are compared."""

from __future__ import annotations

import numpy as np

from espalier.exec.executor import Int32Array

_NO_IDS: Int32Array = np.empty(0, dtype=np.int32)


class RadixNode:
    """An edge of the tree with its lower end: the tokens that lead here and their slots.

    A node keeps its identity as the lower end: when an edge is split, the new node is the upper
    part. So whoever locked a node still holds the whole path. While a node lives, the tokens from
    the root to its end never change, except that its tail may be trimmed; to grow, it is replaced.
    Only RadixCache writes here.
    """

    __slots__ = (
        "children",
        "end",
        "is_alive",
        "is_queued",
        "last_used",
        "namespace",
        "num_locks",
        "parent",
        "serial",
        "slot_ids",
        "token_ids",
    )

    def __init__(self, parent: RadixNode | None, token_ids: Int32Array, slot_ids: Int32Array):
        self.parent = parent
        self.token_ids = token_ids  # [tokens]; empty for a root
        self.slot_ids = slot_ids  # [tokens]
        self.end: int = (parent.end if parent is not None else 0) + len(token_ids)
        self.children: dict[int, RadixNode] = {}  # by first token
        self.num_locks = 0  # holders of this node and of all nodes below it
        self.last_used = 0
        self.serial = 0  # breaks ties in the eviction queue
        self.is_alive = True
        self.is_queued = False  # has an entry in the eviction queue
        self.namespace: str | None = None  # set for a root

    @classmethod
    def new_root(cls, namespace: str) -> RadixNode:
        """A root, without tokens."""
        root = cls(None, _NO_IDS, _NO_IDS)
        root.namespace = namespace
        return root

    @property
    def is_leaf(self) -> bool:
        """True for a node with tokens and without children."""
        return not self.children and self.parent is not None

    def path(self) -> list[RadixNode]:
        """The nodes from below the root down to this one."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes


class PrefixCursor:
    """Where a waiting request's tokens lead in the tree; `RadixCache.peek` moves it.

    It remembers the deepest node that matches whole, so that the next look starts there. It holds
    no lock: the node may die, and the look then starts at its nearest ancestor that lives.
    """

    __slots__ = ("limit", "namespace", "node", "num_matched", "partial", "token_ids")

    def __init__(self, namespace: str, token_ids: Int32Array, limit: int) -> None:
        self.namespace = namespace
        self.token_ids = token_ids
        self.limit = limit  # most tokens that may match
        self.node: RadixNode | None = None  # deepest node that matches whole
        self.partial: RadixNode | None = None  # its child that matches in part
        self.num_matched = 0


def common_length(left: Int32Array, right: Int32Array) -> int:
    """Leading tokens that two runs have in common."""
    shorter = min(len(left), len(right))
    left, right = left[:shorter], right[:shorter]
    # Most runs are equal, and most are short: comparing bytes costs a tenth of comparing arrays.
    if left.tobytes() == right.tobytes():
        return shorter
    differs = left != right
    return int(differs.argmax())


def without_tail(ids: Int32Array, length: int) -> Int32Array:
    """The first `length` ids; copied once the view would keep twice its size alive."""
    view = ids[:length]
    held = ids.base if ids.base is not None else ids
    return view.copy() if held.size > 2 * length + 64 else view
