"""Lengthens the prompt that the children of a fork share by what all of them begin with.

Proof obligation: nothing that can be read changes. The nodes stay as they are; the fork is only
told a longer prompt to have computed once before its first child calls the model (paper, section
4.2). A prompt that is computed without generating changes a cache, and an engine's answers do not
depend on what is cached. A part of a constant may be shared: where its end would be cut into tokens
otherwise than the whole constant, fewer tokens are found in the cache, and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from espalier.lang.graph import AppendNode, DroppedNode, ForkItemNode, ForkNode, Graph, Node
from espalier.lang.ir import SglConstantText, SglExpr, SglRoleBegin, SglRoleEnd
from espalier.lang.passes.note import Note, Passed

NAME = "share fork prefixes"
_KNOWN = (SglConstantText, SglRoleBegin, SglRoleEnd)


def share_fork_prefixes(graph: Graph) -> Passed:
    """The graph with every fork of two and more told what its children begin with."""
    beginnings = known_beginnings(graph.nodes)
    nodes: list[Node] = list(graph.nodes)
    notes = []
    for index, node in enumerate(graph.nodes):
        if isinstance(node, ForkNode) and len(node.children) > 1:
            shared = common_beginning([beginnings[child] for child in node.children])
            if shared and shared != node.shared:
                nodes[index] = replace(node, shared=shared)
                text = "".join(e.value for e in shared if isinstance(e, SglConstantText))
                message = f"the {len(node.children)} children of %{index} begin alike: {text!r}"
                notes.append(Note(NAME, message, text, len(node.children) - 1))
    return Passed(replace(graph, nodes=tuple(nodes)), tuple(notes)) if notes else Passed(graph)


def known_beginnings(nodes: Sequence[Node]) -> dict[int, tuple[SglExpr, ...]]:
    """What each state appends before anything that is not a constant or a role."""
    found: dict[int, list[SglExpr]] = {}
    ended: set[int] = set()
    for node in nodes:
        state = node.state
        own = found.setdefault(state, [])
        if state in ended or isinstance(node, (DroppedNode, ForkItemNode)):
            continue
        if isinstance(node, AppendNode) and isinstance(node.expr, _KNOWN):
            own.append(node.expr)
        else:
            ended.add(state)
    return {state: tuple(own) for state, own in found.items()}


def common_beginning(beginnings: Sequence[Sequence[SglExpr]]) -> tuple[SglExpr, ...]:
    """What all beginnings have in common, a part of a constant included."""
    shared: list[SglExpr] = []
    for parts in zip(*beginnings, strict=False):
        first = parts[0]
        if all(part == first for part in parts):
            shared.append(first)
            continue
        if all(isinstance(part, SglConstantText) for part in parts):
            texts = [part.value for part in parts if isinstance(part, SglConstantText)]
            text = common_start(texts)
            if text:
                shared.append(SglConstantText(text))
        break
    return tuple(shared)


def common_start(texts: Sequence[str]) -> str:
    """The characters that all texts begin with."""
    first, last = min(texts), max(texts)  # what these two share, all between them share
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]
