"""Checks a graph that comes from outside: what a node refers to is there, and comes before it.

A graph that passes is one that a trace could have left, as far as running it depends on that. What
primitives check of their arguments is left to them: they raise when the graph runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, NoReturn

from espalier.backends.base import LogprobOptions
from espalier.errors import UserInputError, shown
from espalier.lang import api
from espalier.lang.abstract import SglAnswer, SglArgument, SglDeferred, SglStateRef, SglVariable
from espalier.lang.form import Form
from espalier.lang.graph import (
    CALLS,
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
from espalier.lang.group import CONCATENATE, check_join
from espalier.lang.ir import (
    SglConstantText,
    SglGen,
    SglReasoning,
    SglReasoningVariable,
    SglRoleBegin,
    SglRoleEnd,
    SglSelect,
    SglVarScopeBegin,
    SglVarScopeEnd,
)
from espalier.lang.location import SourceLine
from espalier.lang.traced_state import MAX_TRACED_FORKS
from espalier.lang.tracer import MAX_NODES
from espalier.types import SamplingParams

QUESTIONS = ("text", "messages", "usage", "sync", "meta")
_PRIMITIVES: dict[str, Callable[..., Any]] = {"gen": api.gen, "select": api.select}
_VALUES = (SglArgument, SglVariable, SglAnswer)
_APPENDED = (
    *CALLS,
    *_VALUES,
    SglConstantText,
    SglReasoningVariable,
    SglRoleBegin,
    SglRoleEnd,
    SglVarScopeBegin,
    SglVarScopeEnd,
)


def check_graph(graph: Graph) -> Graph:
    """The graph; raises UserInputError where it cannot be run."""
    check = _Check(graph)
    check.header()
    for index, node in enumerate(graph.nodes):
        check.node(index, node)
    check.end()
    return graph


class _Check:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._at = "its head"
        self._index = 0
        self._names: dict[int, set[str | None]] = {ROOT: set()}  # variables by state
        self._to_come: dict[int, tuple[int, int]] = {}  # child -> fork and index
        self._forks: set[tuple[int, tuple[int, ...]]] = set()  # not joined
        self._joined: set[int] = set()
        self._programs: list[int] = []  # begun and not ended
        self._scopes: dict[int, list[str]] = {}

    def _wrong(self, what: str) -> NoReturn:
        raise UserInputError(
            f"the graph cannot be run: {self._at} {what}. Graphs as graph_to_json gives them are "
            "allowed."
        )

    def _is(self, value: object, kinds: type | tuple[type, ...], what: str) -> None:
        if not isinstance(value, kinds) or isinstance(value, bool):
            self._wrong(f"has {what} {shown(value)}")

    def header(self) -> None:
        """Everything but nodes and what is read from them."""
        graph = self._graph
        self._is(graph.program, str, "the program's name")
        for what, names in (("arguments", graph.arguments), ("outputs", graph.outputs or ())):
            self._is(names, tuple, what)
            if len(set(map(repr, names))) < len(names):
                self._wrong(f"has {what} with a name twice")
            for name in names:
                self._is(name, str, f"in {what}")
        if not all(name.isidentifier() and name != "s" for name in graph.arguments):
            self._wrong(f"has an argument that is no name among {graph.arguments!r}")
        for what, found in (("variables", graph.variables), ("defaults", graph.defaults)):
            self._is(found, dict, what)
            for name in found:
                self._is(name, str, f"in {what}")
        if not isinstance(graph.waits, bool):
            self._wrong(f"has waits {shown(graph.waits)}")
        if len(graph.nodes) > MAX_NODES:
            self._wrong(f"has {len(graph.nodes)} nodes, of at most {MAX_NODES}")

    def node(self, index: int, node: Node) -> None:
        """One node, after all before it."""
        self._index, self._at = index, f"node %{index}"
        self._is(node.state, int, "the state")
        if isinstance(node, ForkItemNode):
            self._is(node.fork, int, "the fork")
            self._is(node.index, int, "the index")
            if self._to_come.pop(node.state, None) != (node.fork, node.index):
                self._wrong(f"begins state {node.state} of no such fork")
            self._names[node.state] = set(self._names[self._graph.nodes[node.fork].state])
            return
        if isinstance(node, BeginNode):
            self._begin(node)
            return
        if node.state not in self._names:
            self._wrong(f"belongs to state {node.state}, which nothing before it makes")
        if node.state in self._joined and not isinstance(node, (AskNode, DroppedNode)):
            self._wrong(f"adds to state {node.state}, which has been joined")
        self._of_state(node)

    def _of_state(self, node: Node) -> None:
        match node:
            case AppendNode():
                self._append(node)
            case ForkNode():
                self._fork(node)
            case JoinNode():
                self._join(node)
            case SetNode():
                self._is(node.name, str, "the variable")
                self._value(node.value)
                self._names[node.state].add(node.name)
            case EndNode():
                if not self._programs or self._programs.pop() != node.state:
                    self._wrong("ends a program that is not the innermost one")
                self._value(node.value)
            case AskNode():
                self._is(node.what, str, "the question")
                if node.name is not None:
                    self._is(node.name, str, "the variable")
                if node.what not in QUESTIONS or (node.what == "meta" and node.name is None):
                    self._wrong(f"asks for {node.what!r}")
                if node.name is not None and node.name not in self._names[node.state]:
                    self._wrong(f"asks for the variable {node.name!r}, which nothing sets before")

    def _append(self, node: AppendNode) -> None:
        expr = node.expr
        if not isinstance(expr, _APPENDED):
            self._wrong(f"appends {shown(expr)}")
        if node.location is not None:
            self._is(node.location, SourceLine, "the line")
        if isinstance(expr, SglConstantText):
            self._is(expr.value, str, "the text")
        call = expr.gen if isinstance(expr, SglReasoning) else expr
        if isinstance(call, SglDeferred):
            self._deferred(call)
        elif isinstance(call, SglSelect):
            self._select(call)
        elif isinstance(call, SglGen):
            self._gen(call)
        elif isinstance(expr, SglReasoning):
            self._wrong(f"has the gen {shown(call)}")
        if node.is_call or isinstance(expr, SglReasoningVariable):
            self._is(node.variable, (str, type(None)), "the variable")
        elif isinstance(expr, (SglVarScopeBegin, SglVarScopeEnd)):
            self._is(expr.name, str, "the variable")
            self._scope(node.state, expr)
        self._value(expr)
        if node.variable is not None:
            self._names[node.state].add(node.variable)

    def _gen(self, gen: SglGen) -> None:
        for what, given, known in (
            ("sampling", gen.sampling, SamplingParams),
            ("logprobs", gen.logprobs, LogprobOptions),
        ):
            self._is(given, dict, f"the {what}")
            if not {entry.name for entry in fields(known)}.issuperset(given):
                self._wrong(f"has the {what} {shown(given)}")
        if gen.form is not None:
            self._is(gen.form, Form, "the form")
        self._call(gen)

    def _select(self, select: SglSelect) -> None:
        self._is(select.choices, tuple, "the choices")
        for text in select.choices:
            self._is(text, str, "the choice")
        self._is(select.temperature, (int, float), "the temperature")
        if select.seed is not None:
            self._is(select.seed, int, "the seed")
        if not select.choices or not callable(select.choices_method):
            self._wrong("has a select without choices or a method")
        self._call(select)

    def _call(self, call: SglGen | SglSelect) -> None:
        if call.location is not None:
            self._is(call.location, SourceLine, "the line")
        if call.timeout_s is not None:
            self._is(call.timeout_s, (int, float), "the timeout")

    def _deferred(self, call: SglDeferred) -> None:
        primitive = _PRIMITIVES.get(call.primitive)
        if primitive is None:
            self._wrong(f"calls {shown(call.primitive)}; gen and select are allowed")
        self._is(call.arguments, dict, "the arguments")
        unknown = set(call.arguments).difference(inspect.signature(primitive).parameters)
        if unknown:
            self._wrong(f"gives {call.primitive} {', '.join(sorted(map(repr, unknown)))}")

    def _scope(self, state: int, expr: SglVarScopeBegin | SglVarScopeEnd) -> None:
        scopes = self._scopes.setdefault(state, [])
        if isinstance(expr, SglVarScopeBegin):
            scopes.append(expr.name)
        elif not scopes or scopes.pop() != expr.name:
            self._wrong(f"ends var_scope {expr.name!r}, which is not the innermost open one")

    def _fork(self, node: ForkNode) -> None:
        self._is(node.children, tuple, "the forks")
        self._is(node.shared, tuple, "the shared prompt")
        if len(node.children) > MAX_TRACED_FORKS:
            self._wrong(f"makes {len(node.children)} forks, of at most {MAX_TRACED_FORKS}")
        for index, child in enumerate(node.children):
            self._is(child, int, "the fork")
            if child in self._names or child in self._to_come:
                self._wrong(f"makes state {child} again")
            self._to_come[child] = (self._index, index)
        for expr in node.shared:
            self._is(expr, (SglConstantText, SglRoleBegin, SglRoleEnd), "in the shared prompt")
        self._forks.add((node.state, node.children))

    def _join(self, node: JoinNode) -> None:
        self._is(node.children, tuple, "the forks")
        for child in node.children:
            self._is(child, int, "the fork")
        self._is(node.mode, str, "the mode")
        self._is(node.on_error, str, "on_error")
        check_join(node.mode, node.on_error)
        known = self._names
        if (node.state, node.children) not in self._forks or not all(
            child in known and child not in self._joined for child in node.children
        ):
            self._wrong("joins no fork of its state")
        self._is(node.names, tuple, "the variables")
        for name in node.names:
            self._is(name, str, "the variable")
        of_forks = set().union(*(known[child] for child in node.children)) - known[node.state]
        made = {name for name in of_forks if name is not None}
        if set(node.names) != (set() if node.mode == CONCATENATE else made):
            self._wrong(f"brings the variables {node.names!r}, the forks have {sorted(made)!r}")
        self._joined.update(node.children)
        known[node.state].update(node.names)

    def _begin(self, node: BeginNode) -> None:
        if node.state in self._names or node.state in self._to_come:
            self._wrong(f"makes state {node.state} again")
        self._is(node.program, str, "the program")
        if not isinstance(node.options, Mapping):
            self._wrong(f"has the options {shown(node.options)}")
        self._value(dict(node.options))
        self._names[node.state] = set()
        self._programs.append(node.state)

    def _value(self, value: object) -> None:
        """Everything abstract in a value."""
        nodes = self._graph.nodes
        for found in abstract_in(value):
            if isinstance(found, SglArgument):
                if found.name not in self._graph.arguments:
                    self._wrong(f"uses the argument {found.name!r}, which is none")
            elif isinstance(found, SglStateRef):
                if found.number not in self._names:
                    self._wrong(f"uses state {found.number!r}, which nothing before makes")
            elif isinstance(found, (SglVariable, SglAnswer)):
                self._is(found.node, int, "a reference")
                made = nodes[found.node] if 0 <= found.node < self._index else None
                if isinstance(found, SglAnswer):
                    is_right = isinstance(made, AskNode)
                else:
                    self._is(found.items, tuple, "the items")
                    for item in found.items:
                        self._is(item, int, "the item")
                    is_right = isinstance(made, AppendNode) and (
                        made.is_call or made.variable is not None
                    )
                if not is_right:
                    self._wrong(f"refers to node %{found.node}, which gives it nothing")

    def end(self) -> None:
        """What is read after the last node."""
        self._at, self._index = "its end", len(self._graph.nodes)
        if self._to_come or self._programs or any(self._scopes.values()):
            self._wrong("leaves a fork that has not begun, a program or a var_scope open")
        self._value(self._graph.value)
        for name, value in self._graph.variables.items():
            if name not in self._names[ROOT]:
                self._wrong(f"has the variable {name!r}, which nothing sets")
            self._value(value)
