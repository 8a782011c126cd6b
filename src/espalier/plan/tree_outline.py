"""What of a prefix tree a drawing can hold: the most used branches, the others counted together.

It must not know how it is drawn.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from espalier.plan.prefix_tree import Ids, PrefixNode, PrefixTree
from espalier.plan.request_log import GenerateRecord, PrefillRecord, Record

MAX_LEAVES = 56
MAX_CHILDREN = 8  # of one branching
MAX_DRAWN_NODES = 600
MAX_TEXT_TOKENS = 160  # of an edge, at its beginning and at its end together


@dataclass(slots=True)
class DrawnNode:
    """An edge as it is drawn; `num_hidden` branches stand together where it is above 0.

    Attributes:
        num_tokens: tokens of the edge, or of all hidden branches.
        num_requests: requests whose prompt goes through it.
        is_generated: an output holds its tokens; `in_prompt`: so does a prompt.
        text: its text, the middle left out where it is long.
    """

    num_tokens: int
    num_requests: int
    is_generated: bool
    in_prompt: bool
    text: str
    num_hidden: int = 0
    children: list[DrawnNode] = field(default_factory=list)


def count_requests(records: Iterable[Record]) -> Counter[PrefixNode]:
    """How many requests have a prompt that goes through each node."""
    counts: Counter[PrefixNode] = Counter()
    for record in records:
        if isinstance(record, GenerateRecord):
            counts.update(record.prompt.path())
        elif not isinstance(record, PrefillRecord):
            nodes = {node for sequence in record.sequences for node in sequence.path()}
            counts.update(nodes)
    return counts


_Waiting = tuple[int, int, PrefixNode, DrawnNode]  # most requests first, then by number


class Outline:
    """Chooses what is drawn."""

    def __init__(self, requests: Counter[PrefixNode], text_of: Callable[[Ids], str]) -> None:
        self._requests = requests
        self._text_of = text_of
        self._num_leaves = 1
        self._num_nodes = 0
        self._count = 0

    def draw(self, tree: PrefixTree) -> DrawnNode:
        """The root, with all below it that fits: first what is used most, then some whole rows."""
        root = DrawnNode(0, 0, False, False, "")
        queue: list[_Waiting] = []
        self._push(queue, tree.root, root)
        waiting = self._open_all(queue, MAX_LEAVES * 2 // 3, MAX_CHILDREN)
        for item in waiting:
            rest = self._open_all([item], MAX_LEAVES, 1)
            for _, _, node, drawn in rest:
                if node.children:
                    drawn.children.append(self._hidden(list(node.children.values())))
        return root

    def _open_all(
        self, queue: list[_Waiting], max_leaves: int, max_children: int
    ) -> list[_Waiting]:
        """Draws below the nodes of a queue while there is room; returns those that are left."""
        left: list[_Waiting] = []
        while queue:
            item = heapq.heappop(queue)
            _, _, node, drawn = item
            num_rows = min(len(node.children), max_children + 1)
            is_full = self._num_nodes >= MAX_DRAWN_NODES
            if is_full or self._num_leaves + max(0, num_rows - 1) > max_leaves:
                left.append(item)
                continue
            for child, drawn_child in self._open(node, drawn, max_children):
                self._push(queue, child, drawn_child)
        return left

    def _push(self, queue: list[_Waiting], node: PrefixNode, drawn: DrawnNode) -> None:
        self._count += 1
        heapq.heappush(queue, (-drawn.num_requests, self._count, node, drawn))

    def _open(
        self, node: PrefixNode, drawn: DrawnNode, max_children: int
    ) -> list[tuple[PrefixNode, DrawnNode]]:
        """Draws the most used children of a node; the others as one."""
        children = sorted(
            node.children.values(), key=lambda child: (-self._requests[child], child.serial)
        )
        num_shown = len(children) if len(children) <= max_children + 1 else max_children
        if max_children == 1:
            num_shown = min(num_shown, 1)
        shown = []
        for child in children[:num_shown]:
            upper, lower = self._chain(child)
            shown.append((lower, self._edge(upper, lower)))
        drawn.children += [drawn_child for _, drawn_child in shown]
        if children[num_shown:]:
            drawn.children.append(self._hidden(children[num_shown:]))
        self._num_leaves += max(0, len(drawn.children) - 1)
        self._num_nodes += len(drawn.children)
        return shown

    def _chain(self, node: PrefixNode) -> tuple[PrefixNode, PrefixNode]:
        """A node, and the last one of the row of only children that are drawn as one with it."""
        lower = node
        while len(lower.children) == 1:
            (child,) = lower.children.values()
            if self._kind(child) != self._kind(node):
                break
            lower = child
        return node, lower

    def _kind(self, node: PrefixNode) -> tuple[int, bool, bool]:
        return self._requests[node], node.is_generated, node.in_prompt

    def _edge(self, upper: PrefixNode, lower: PrefixNode) -> DrawnNode:
        parts = []
        node: PrefixNode | None = lower
        while node is not None and node is not upper.parent:
            parts.append(node.ids)
            node = node.parent
        ids = tuple(token_id for part in reversed(parts) for token_id in part)
        return DrawnNode(
            len(ids), self._requests[upper], upper.is_generated, upper.in_prompt, self._text(ids)
        )

    def _text(self, ids: Ids) -> str:
        if len(ids) <= MAX_TEXT_TOKENS:
            return self._text_of(ids)
        half = MAX_TEXT_TOKENS // 2
        return f"{self._text_of(ids[:half])} \u2026 {self._text_of(ids[-half:])}"

    def _hidden(self, nodes: list[PrefixNode]) -> DrawnNode:
        num_tokens = 0
        stack = list(nodes)
        while stack:
            node = stack.pop()
            num_tokens += len(node.ids)
            stack.extend(node.children.values())
        num_requests = sum(self._requests[node] for node in nodes)
        return DrawnNode(num_tokens, num_requests, False, True, "", len(nodes))
