"""Drops what the wanted outputs do not need; only where the caller names the outputs.

Proof obligation: the named variables and the return value stay as they were. They depend on the
nodes that set them, on the text before those nodes in their state and in the states that it was
forked from, on the variables that this text uses, and on text that joins bring into it. A node that
is in none of these is dropped. Nodes are dropped only from the end of a state, so that the calls
that are left have the same place in it, and with it the same key. What was not asked for cannot be
read afterwards: reading it raises an error that says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from espalier.errors import UserInputError
from espalier.lang.abstract import SglAnswer, SglStateRef, SglVariable
from espalier.lang.graph import (
    ROOT,
    AppendNode,
    AskNode,
    BeginNode,
    DroppedNode,
    EndNode,
    ForkItemNode,
    ForkNode,
    Graph,
    JoinNode,
    Node,
    SetNode,
    abstract_in,
)
from espalier.lang.group import GATHER
from espalier.lang.passes.note import Note, Passed

NAME = "drop dead generations"


def drop_dead(graph: Graph, outputs: Sequence[str]) -> Passed:
    """The graph with what the variables `outputs` and the return value need.

    Raises UserInputError for an output that the program does not set.
    """
    for name in outputs:
        if name not in graph.variables:
            known = ", ".join(sorted(map(repr, graph.variables))) or "none"
            raise UserInputError(f"the program sets no variable {name!r}; it sets {known}.")
    live = Liveness(graph)
    for name in outputs:
        live.need_variable(ROOT, name)
    live.need_values(graph.value)
    for node in graph.nodes:
        if isinstance(node, EndNode):
            live.need_values(node.value)
    nodes = [live.kept(index, node) for index, node in enumerate(graph.nodes)]
    notes = tuple(
        Note(NAME, f"%{index} {node!r} is not needed for {', '.join(outputs)}")
        for index, node in enumerate(graph.nodes)
        if isinstance(node, AppendNode) and node.is_call and isinstance(nodes[index], DroppedNode)
    )
    return Passed(replace(graph, nodes=tuple(nodes), outputs=tuple(outputs)), notes)


class Liveness:
    """How much of each state is needed: every node of it up to the last needed one."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ends: dict[int, int] = {}  # state -> its last needed node
        self._sets: set[int] = set()
        self._scopes = sorted(graph.scope_ends().items(), key=lambda scope: scope[1])
        self._joins: set[int] = set()
        self._parent = {
            node.state: (graph.nodes[node.fork].state, node.fork)
            for node in graph.nodes
            if isinstance(node, ForkItemNode)
        }
        self._nodes_of: dict[int, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            self._nodes_of.setdefault(node.state, []).append(index)

    def need_variable(self, state: int, name: str) -> None:
        """A variable of a state: what sets it last, in each fork where a join brings it."""
        for index in reversed(self._nodes_of.get(state, [])):
            node = self._graph.nodes[index]
            if isinstance(node, SetNode) and node.name == name:
                self._sets.add(index)
                return self.need_values(node.value)
            if isinstance(node, JoinNode) and name in node.names:
                self._joins.add(index)
                for child in node.children:
                    self.need_variable(child, name)
                return None
            if isinstance(node, AppendNode) and node.variable == name:
                return self.need_node(index)
        return None  # this fork has none

    def need_values(self, value: Any) -> None:
        """Everything abstract in a value."""
        for found in abstract_in(value):
            if isinstance(found, SglVariable):
                self.need_node(found.node)
            elif isinstance(found, SglAnswer):
                self.need_answer(found.node)
            elif isinstance(found, SglStateRef):
                self.need_all(found.number)

    def need_answer(self, index: int) -> None:
        """What a state answers: its text so far, or one variable."""
        node = self._graph.nodes[index]
        assert isinstance(node, AskNode)
        self.need_node(index)

    def need_all(self, state: int) -> None:
        """All of a state."""
        self.need_node(self._nodes_of[state][-1])

    def need_node(self, index: int) -> None:
        """A node, and everything before it in its state."""
        self._need_until(self._graph.nodes[index].state, index)

    def _after_scopes(self, state: int, end: int) -> int:
        """The end of the var_scopes that are open at a node: no scope is left open."""
        for begin, scope_end in self._scopes:  # outer scopes end later
            if self._graph.nodes[begin].state == state and begin <= end < scope_end:
                end = scope_end
        return end

    def _need_until(self, state: int, end: int) -> None:
        end = self._after_scopes(state, end)
        begin = self._ends.get(state, -1)
        if end <= begin:
            return
        self._ends[state] = end
        for index in self._nodes_of.get(state, []):
            if begin < index <= end:
                self._need_parts(self._graph.nodes[index])
        if state in self._parent:
            self._need_until(*self._parent[state])

    def _need_parts(self, node: Node) -> None:
        """What a needed node needs itself."""
        match node:
            case AppendNode() | SetNode():
                self.need_values(node.expr if isinstance(node, AppendNode) else node.value)
            case BeginNode():
                self.need_values(dict(node.options))
            case JoinNode() if node.mode != GATHER:
                for child in node.children:
                    self.need_all(child)
            case _:
                return

    def kept(self, index: int, node: Node) -> Node:
        """What becomes of a node."""
        if not self._is_needed(index, node):
            return DroppedNode(node.state, "no output needs it")
        if isinstance(node, JoinNode) and not self._is_before_end(index, node):
            return replace(node, mode=GATHER)  # its variables are needed, its text is not
        return node

    def _is_before_end(self, index: int, node: Node) -> bool:
        return index <= self._ends.get(node.state, -1)

    def _is_needed(self, index: int, node: Node) -> bool:
        if isinstance(node, (ForkNode, ForkItemNode)) or not isinstance(
            node, (AppendNode, SetNode, JoinNode, AskNode)
        ):
            return True  # they cost nothing and keep the places of what is left
        if isinstance(node, JoinNode):
            return index in self._joins or (
                node.mode != GATHER and self._is_before_end(index, node)
            )
        return index in self._sets or self._is_before_end(index, node)
