"""The prefix tree of all requests of a plan: every token of every prompt and output, once.

Nothing is ever evicted here; what a cache of a given size would hold of it is cache_run's. It must
not know programs or tokenizers.
"""

from __future__ import annotations

from collections.abc import Iterator

Ids = tuple[int, ...]


class PrefixNode:
    """An edge of the tree with its lower end. A node that is split stays the lower end.

    `in_prompt` and `is_generated` say whether some prompt and some output hold all of its tokens.
    """

    __slots__ = (
        "children",
        "end",
        "held",
        "ids",
        "in_prompt",
        "is_generated",
        "last_used",
        "num_held_children",
        "num_locks",
        "parent",
        "serial",
    )

    def __init__(self, parent: PrefixNode | None, ids: Ids, serial: int) -> None:
        self.parent = parent
        self.ids = ids
        self.end: int = len(ids) + (0 if parent is None else parent.end)
        self.children: dict[int, PrefixNode] = {}
        self.serial = serial
        self.in_prompt = False
        self.is_generated = False
        # What a run of a cache has of the node, see cache_run.
        self.held = 0  # leading tokens
        self.num_held_children = 0
        self.num_locks = 0
        self.last_used = 0

    @property
    def start(self) -> int:
        """Tokens before the node's own."""
        return self.end - len(self.ids)

    def path(self) -> list[PrefixNode]:
        """The nodes from below the root down to this one."""
        nodes = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes


class PrefixTree:
    """Token sequences as a tree (paper section 4.1), without eviction."""

    def __init__(self) -> None:
        self.root = PrefixNode(None, (), 0)
        self.num_nodes = 0

    def insert(self, ids: Ids) -> tuple[PrefixNode, int]:
        """The node where a sequence ends, made if need be, and how many tokens were known."""
        node = self.root
        position, total = 0, len(ids)
        while position < total:
            child = node.children.get(ids[position])
            if child is None:
                return self._add_leaf(node, ids[position:]), position
            edge = child.ids
            end = position + len(edge)
            if end <= total and ids[position:end] == edge:
                node, position = child, end
                continue
            shared = common_length(edge, ids[position:end])
            node = self._split(child, shared)
            position += shared
        return node, position

    def _add_leaf(self, parent: PrefixNode, ids: Ids) -> PrefixNode:
        self.num_nodes += 1
        leaf = parent.children[ids[0]] = PrefixNode(parent, ids, self.num_nodes)
        return leaf

    def _split(self, node: PrefixNode, length: int) -> PrefixNode:
        parent = node.parent
        assert parent is not None
        self.num_nodes += 1
        upper = PrefixNode(parent, node.ids[:length], self.num_nodes)
        upper.in_prompt, upper.is_generated = node.in_prompt, node.is_generated
        parent.children[upper.ids[0]] = upper
        node.ids, node.parent = node.ids[length:], upper
        upper.children[node.ids[0]] = node
        return upper

    def nodes(self) -> Iterator[PrefixNode]:
        """Every node but the root, each after its parent."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def forget_cache(self) -> None:
        """Takes back what a run of a cache has left in the nodes."""
        for node in self.nodes():
            node.held = node.num_held_children = node.num_locks = node.last_used = 0
        self.root.num_held_children = 0

    def count_prompt_tokens(self) -> tuple[int, int]:
        """Tokens that prompts hold, each place once: all of them, and those that no output gives.

        The first is the cost of a depth-first order by the paper's theorem (section 4.4), which
        knows no outputs; the second what is left of it where outputs stay in the cache.
        """
        distinct = not_generated = 0
        for node in self.nodes():
            if node.in_prompt:
                distinct += len(node.ids)
                not_generated += 0 if node.is_generated else len(node.ids)
        return distinct, not_generated


def mark_prompt(node: PrefixNode) -> None:
    """Notes that a prompt ends at a node."""
    step: PrefixNode | None = node
    while step is not None and not step.in_prompt:
        step.in_prompt = True
        step = step.parent


def mark_generated(start: PrefixNode, node: PrefixNode) -> None:
    """Notes that an output lies between the end of its prompt and a node below."""
    while node is not start:
        node.is_generated = True
        assert node.parent is not None
        node = node.parent


def common_length(left: Ids, right: Ids) -> int:
    """Leading tokens that two runs have in common."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:  # the first `low` are equal, the first `high` are not
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low
