"""A traced program: what it appends, forks, joins and sets, in the order in which it says so.

A graph is a list of nodes; each belongs to a state, numbered from 0 (the program's own). States are
made by forks and by programs that the program runs. Values that are not known yet refer to nodes by
their number. Immutable: passes make new graphs. It must not know how graphs are made or run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from espalier.lang.abstract import Abstract, SglDeferred, SglVariable
from espalier.lang.ir import (
    SglExpr,
    SglExprList,
    SglGen,
    SglReasoning,
    SglReasoningVariable,
    SglSelect,
    SglVarScopeBegin,
    SglVarScopeEnd,
)
from espalier.lang.location import SourceLine

ROOT = 0  # the program's own state
CALLS = (SglGen, SglReasoning, SglSelect, SglDeferred)
DECLARING = (*CALLS, SglReasoningVariable, SglVarScopeBegin)


@dataclass(frozen=True, slots=True)
class Node:
    """Something that the program does to a state."""

    state: int

    def used(self) -> Iterator[SglVariable]:
        """The variables whose values it needs."""
        return iter(())


@dataclass(frozen=True, slots=True)
class AppendNode(Node):
    """Appends one expression (never a list of them)."""

    expr: SglExpr
    location: SourceLine | None = None

    @property
    def is_call(self) -> bool:
        """True where it calls the model."""
        return isinstance(self.expr, CALLS)

    @property
    def variable(self) -> str | None:
        """The variable that it declares, or None."""
        return self.expr.name if isinstance(self.expr, DECLARING) else None

    def used(self) -> Iterator[SglVariable]:
        """Of its expression."""
        return variables_in(self.expr)

    def __repr__(self) -> str:
        return repr(self.expr)


@dataclass(frozen=True, slots=True)
class ForkNode(Node):
    """Forks a state; `shared` is what every child begins with, known when the fork is made."""

    children: tuple[int, ...]
    shared: tuple[SglExpr, ...] = ()

    def __repr__(self) -> str:
        return f"Fork({len(self.children)})"


@dataclass(frozen=True, slots=True)
class ForkItemNode(Node):
    """The start of one child of a fork; `state` is the child's."""

    fork: int
    index: int

    def __repr__(self) -> str:
        return f"GetForkItem(%{self.fork}, {self.index})"


@dataclass(frozen=True, slots=True)
class JoinNode(Node):
    """Brings the children of a fork back into `state`; `names` are the variables that it makes."""

    children: tuple[int, ...]
    mode: str
    on_error: str
    names: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Join({self.mode})"


@dataclass(frozen=True, slots=True)
class SetNode(Node):
    """Sets a variable to a value that may hold abstract values."""

    name: str
    value: Any

    def used(self) -> Iterator[SglVariable]:
        """Of its value."""
        return variables_in(self.value)

    def __repr__(self) -> str:
        return f"Set({self.name!r})"


@dataclass(frozen=True, slots=True)
class BeginNode(Node):
    """Starts another program, whose own state is `state`, run by the program of state `caller`."""

    program: str
    caller: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def used(self) -> Iterator[SglVariable]:
        """Of its options."""
        return variables_in(dict(self.options))

    def __repr__(self) -> str:
        return f"Program({self.program})"


@dataclass(frozen=True, slots=True)
class EndNode(Node):
    """The end of that program's body, and what it returned."""

    value: Any

    def used(self) -> Iterator[SglVariable]:
        """Of the return value."""
        return variables_in(self.value)

    def __repr__(self) -> str:
        return "End()"


@dataclass(frozen=True, slots=True)
class AskNode(Node):
    """Asks a state for its text, its messages, its usage, a meta_info, or to be finished."""

    what: str
    name: str | None = None

    def __repr__(self) -> str:
        return f"Ask({self.what})"


@dataclass(frozen=True, slots=True)
class DroppedNode(Node):
    """What a pass has taken out; it keeps the numbers of the nodes after it."""

    why: str

    def __repr__(self) -> str:
        return f"Dropped({self.why})"


@dataclass(frozen=True, slots=True)
class Graph:
    """A traced program.

    Attributes:
        program: its name.
        arguments: names of the arguments that are given when it runs.
        nodes: in the order of the program; what a node refers to comes before it.
        variables: of the program's own state at its end: name -> the value that a read gives.
        value: what the program returns; may hold abstract values.
        defaults: values of arguments that need not be given.
        waits: true where each use of a variable waits for it before what comes next is submitted,
            as an interpreted program does.
        outputs: the variables that can be read afterwards; None: everything.
    """

    program: str
    arguments: tuple[str, ...]
    nodes: tuple[Node, ...]
    variables: Mapping[str, Any]
    value: Any = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    waits: bool = True
    outputs: tuple[str, ...] | None = None

    @property
    def calls(self) -> tuple[AppendNode, ...]:
        """The nodes that call the model."""
        return tuple(n for n in self.nodes if isinstance(n, AppendNode) and n.is_call)

    def scope_ends(self) -> dict[int, int]:
        """The node that ends each var_scope, by the node that begins it."""
        open_scopes: dict[int, list[int]] = {}
        ends: dict[int, int] = {}
        for index, node in enumerate(self.nodes):
            if not isinstance(node, AppendNode):
                continue
            if isinstance(node.expr, SglVarScopeBegin):
                open_scopes.setdefault(node.state, []).append(index)
            elif isinstance(node.expr, SglVarScopeEnd):
                ends[open_scopes[node.state].pop()] = index
        return ends

    def __str__(self) -> str:
        lines = [f"{self.program}({', '.join(self.arguments)})"]
        parents = self.previous()
        for index, node in enumerate(self.nodes):
            after = f"  <- %{parents[index]}" if index in parents else ""
            lines.append(f"  %{index} [{node.state}] {node!r}{after}")
        return "\n".join(lines)

    def previous(self) -> dict[int, int]:
        """The node before each node in the same state; a child's first comes after the fork."""
        last: dict[int, int] = {}
        found: dict[int, int] = {}
        for index, node in enumerate(self.nodes):
            if isinstance(node, ForkItemNode):
                found[index] = node.fork
            elif node.state in last:
                found[index] = last[node.state]
            last[node.state] = index
        return found


def abstract_in(value: object) -> Iterator[Abstract]:
    """Everything abstract in a value or an expression, in no particular order."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Abstract):
            yield found
        elif isinstance(found, SglExprList):
            waiting += found.expr_list
        elif isinstance(found, SglReasoning):
            waiting.append(found.gen)
        elif isinstance(found, SglDeferred):
            waiting += found.arguments.values()
        elif isinstance(found, (list, tuple)):
            waiting += found
        elif isinstance(found, dict):
            waiting += found.values()


def variables_in(value: object) -> Iterator[SglVariable]:
    """Every variable that a value or an expression refers to."""
    return (found for found in abstract_in(value) if isinstance(found, SglVariable))
