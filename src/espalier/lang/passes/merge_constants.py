"""Merges constants that stand together in a state.

Proof obligation: text, tokens, messages, variables and calls stay as they were. Two constants are
merged only where the second is the next node of the first one's state, so that no call, role, fork,
join, scope or question sees the state between them. A prompt's constants that stand together are
tokenised together anyway (backends/prompt_ids.py), and neither role nor right to spell control
tokens changes between them. States know nothing of each other but through nodes of both, so that
appending the second earlier is seen by nobody.
"""

from __future__ import annotations

from dataclasses import replace

from espalier.lang.graph import AppendNode, DroppedNode, Graph, JoinNode, Node
from espalier.lang.ir import SglConstantText
from espalier.lang.passes.note import Note, Passed

NAME = "merge constants"


def merge_constants(graph: Graph) -> Passed:
    """The graph with each run of constants in its first node."""
    nodes: list[Node] = list(graph.nodes)
    last: dict[int, int] = {}  # state -> its last node that matters
    num_merged = 0
    for index, node in enumerate(graph.nodes):
        before = last.get(node.state)
        text = constant_of(node)
        first = None if before is None else constant_of(nodes[before])
        if before is not None and text is not None and first is not None:
            kept = nodes[before]
            assert isinstance(kept, AppendNode)
            nodes[before] = replace(kept, expr=SglConstantText(first + text))
            nodes[index] = DroppedNode(node.state, f"merged into %{before}")
            num_merged += 1
            continue
        last[node.state] = index
        if isinstance(node, JoinNode):
            for child in node.children:
                last[child] = index
    if not num_merged:
        return Passed(graph)
    note = Note(NAME, f"{num_merged} constants were appended to the constant before them")
    return Passed(replace(graph, nodes=tuple(nodes)), (note,))


def constant_of(node: Node) -> str | None:
    """The text that a node appends, where it is known."""
    if isinstance(node, AppendNode) and isinstance(node.expr, SglConstantText):
        return node.expr.value
    return None
