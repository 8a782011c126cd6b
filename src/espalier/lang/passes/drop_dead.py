"""Drops what the wanted outputs do not need; only where the caller names the outputs.

Proof obligation: the named variables and the return value stay as they were. They depend on the
nodes that set them, on the text before those nodes in their state and in the states that it was
forked from, on the variables that this text uses, and on text that joins bring into it; what a
state is asked depends on its text or on the variable that is asked for, its usage on all before it.
A node that is in none of these is dropped. Calls are dropped only from the end of a state, so that
those that are left have the same place in it, and with it the same key. What was not asked for
cannot be read afterwards: reading it raises an error that says so.
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
    live.settle()
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
        self._waiting: list[tuple[int, int]] = []  # states and nodes that are to be such
        self._sets: set[int] = set()
        self._scopes = sorted(graph.scope_ends().items(), key=lambda scope: scope[1])
        self._joins: set[int] = set()
        self._asks: set[int] = set()
        self._returned: set[int] = set()  # states that can be read afterwards
        self._parent = {
            node.state: (graph.nodes[node.fork].state, node.fork)
            for node in graph.nodes
            if isinstance(node, ForkItemNode)
        }
        self._nodes_of: dict[int, list[int]] = {}
        for index, node in enumerate(graph.nodes):
            self._nodes_of.setdefault(node.state, []).append(index)

    def need_variable(self, state: int, name: str, before: int | None = None) -> None:
        """A variable of a state: what sets it last, in each fork where a join brings it.

        `before` is the node that reads it, which finds what a fork took over as well.
        """
        for index in reversed(self._nodes_of.get(state, [])):
            if before is not None and index >= before:
                continue
            node = self._graph.nodes[index]
            if isinstance(node, SetNode) and node.name == name:
                if index not in self._sets:
                    self._sets.add(index)
                    self.need_values(node.value)
                return None
            if isinstance(node, JoinNode) and name in node.names:
                self._joins.add(index)
                for child in node.children:
                    self.need_variable(child, name)
                return None
            if isinstance(node, AppendNode) and node.variable == name:
                return self.need_node(index)
        if before is not None and state in self._parent:
            parent, fork = self._parent[state]
            self.need_variable(parent, name, fork)
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
                self._need_readable(found.number)

    def need_answer(self, index: int) -> None:
        """What a state answers: its text so far, or one variable."""
        node = self._graph.nodes[index]
        if index in self._asks:
            return
        self._asks.add(index)
        self.need_node(index)
        if isinstance(node, AskNode) and node.name is not None:
            self.need_variable(node.state, node.name, index)
        elif isinstance(node, AskNode) and node.what == "usage":
            for other in range(index):  # it counts what forks and programs have called by then
                self.need_node(other)
                if isinstance(self._graph.nodes[other], JoinNode):
                    self._joins.add(other)
                if isinstance(self._graph.nodes[other], AskNode):
                    self._asks.add(other)

    def _need_readable(self, state: int) -> None:
        """The variables of a state that the program returns, and what its program returned."""
        if state in self._returned:
            return
        self._returned.add(state)
        end = len(self._graph.nodes)
        for name in self._names_in(state):
            self.need_variable(state, name, end)
        for index in self._nodes_of[state]:
            node = self._graph.nodes[index]
            if isinstance(node, EndNode):
                self.need_values(node.value)

    def _names_in(self, state: int) -> set[str]:
        found: set[str] = set()
        for index in self._nodes_of[state]:
            node = self._graph.nodes[index]
            if isinstance(node, SetNode):
                found.add(node.name)
            elif isinstance(node, JoinNode):
                found.update(node.names)
        if state in self._parent:
            found |= self._names_in(self._parent[state][0])
        return found

    def need_all(self, state: int) -> None:
        """All of a state."""
        self.need_node(self._nodes_of[state][-1])

    def need_node(self, index: int) -> None:
        """A node, and everything before it in its state."""
        self._waiting.append((self._graph.nodes[index].state, index))

    def settle(self) -> None:
        """Finds all that is needed for what was asked for."""
        while self._waiting:
            self._need_until(*self._waiting.pop())

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
            self._waiting.append(self._parent[state])

    def _need_parts(self, node: Node) -> None:
        """What a needed node needs itself."""
        match node:
            case AppendNode():
                self.need_values(node.expr)
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
        if isinstance(node, EndNode) and node.state not in self._returned:
            return replace(node, value=None)  # nobody can ask for it
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
        if isinstance(node, AskNode):
            return index in self._asks
        if isinstance(node, JoinNode):
            return index in self._joins or (
                node.mode != GATHER and self._is_before_end(index, node)
            )
        if isinstance(node, SetNode):
            return index in self._sets
        return self._is_before_end(index, node)
