"""Runs a graph: the body of a compiled program.

Each node does to its state what the program's line did. Where the graph does not wait, a use of a
variable becomes an operation of the state that uses it, so that everything is submitted at once;
what the program's lines would have raised is raised when all is submitted, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from espalier.errors import GenerationError, RequestCancelledError, UnknownVariableError
from espalier.lang import api
from espalier.lang.abstract import (
    SglAnswer,
    SglArgument,
    SglDeferred,
    SglStateRef,
    SglText,
    SglVariable,
)
from espalier.lang.graph import (
    DECLARING,
    ROOT,
    AppendNode,
    AskNode,
    BeginNode,
    EndNode,
    ForkItemNode,
    ForkNode,
    Graph,
    JoinNode,
    Node,
    SetNode,
)
from espalier.lang.group import ProgramStateGroup
from espalier.lang.interpreter import launch, running
from espalier.lang.ir import (
    SglConstantText,
    SglExpr,
    SglGen,
    SglPromised,
    SglReasoning,
    SglSelect,
    SglVarScopeBegin,
    SglVarScopeEnd,
    as_expr,
)
from espalier.lang.ops import picked, texts_of
from espalier.lang.options import RunOptions
from espalier.lang.questions import messages_of, nothing_of, text_of
from espalier.lang.reading import ask
from espalier.lang.state import ProgramState
from espalier.lang.stream import Stream
from espalier.lang.variables import Variable
from espalier.types import Usage

Wait = Callable[[], Any]
PRIMITIVES: dict[str, Callable[..., SglExpr]] = {"gen": api.gen, "select": api.select}


def execute(graph: Graph, state: ProgramState, arguments: Mapping[str, Any]) -> Any:
    """Runs a graph on the state of a run; returns what the program returns.

    Raises what the program would raise: the GenerationError of a variable or a join that it uses.
    """
    with ExitStack() as programs:
        return Execution(graph, state, arguments, programs).run()


class Execution:
    """One run of a graph. `programs` holds the programs that it runs, until they end."""

    def __init__(
        self, graph: Graph, state: ProgramState, arguments: Mapping[str, Any], programs: ExitStack
    ) -> None:
        self._graph = graph
        self._arguments = arguments
        self._programs = programs
        self._ends: dict[int, ExitStack] = {}
        self._states: dict[int, ProgramState] = {ROOT: state}
        # By the state that was forked too: forks into no states are all alike.
        self._groups: dict[tuple[int, tuple[int, ...]], ProgramStateGroup[ProgramState]] = {}
        self._variables: dict[int, Variable] = {}
        self._answers: dict[int, Wait] = {}
        self._waits: list[Wait] = []

    def run(self) -> Any:
        """Submits every node, waits for what the program waited for, and returns its value."""
        try:
            for index, node in enumerate(self._graph.nodes):
                self._step(index, node)
        except Exception:
            self._wait()  # a line before may have raised already
            raise
        self._wait()
        return self._value(self._graph.value)

    def _wait(self) -> None:
        """Waits for what the lines so far have waited for; raises what the first would have.

        What was cancelled for another's sake would have ended before that one, line by line.
        """
        waits, self._waits = self._waits, []
        cancelled: Exception | None = None
        for wait in waits:
            try:
                wait()
            except Exception as error:  # noqa: PERF203 - each wait has an error of its own
                reason = error.__cause__ if isinstance(error, GenerationError) else error
                if not isinstance(reason, RequestCancelledError):
                    raise
                cancelled = cancelled or error
        if cancelled is not None:
            raise cancelled

    def _step(self, index: int, node: Node) -> None:
        match node:
            case AppendNode():
                self._append(index, node)
            case ForkNode():
                group = self._states[node.state].fork_sharing(len(node.children), node.shared)
                self._groups[node.state, node.children] = group
                self._states.update(zip(node.children, group, strict=True))
            case JoinNode():
                self._join(node)
            case SetNode():
                self._set(node)
            case BeginNode():
                self._begin(node)
            case EndNode():
                self._end(node)
            case AskNode():
                self._ask(index, node)
            case ForkItemNode() | _:
                return

    def _append(self, index: int, node: AppendNode) -> None:
        state, expr = self._states[node.state], self._bound(node.expr)
        if isinstance(expr, (SglVarScopeBegin, SglVarScopeEnd)):
            expr = replace(expr, location=node.location)
        state += expr
        if isinstance(node.expr, DECLARING):
            self._variables[index] = _named(state, node.expr.name)

    def _bound(self, expr: SglExpr) -> SglExpr:
        """The expression with arguments and variables in place."""
        match expr:
            case SglArgument():
                return as_expr(self._arguments[expr.name])
            case SglVariable():
                return self._promised(self._variables[expr.node], expr)
            case SglAnswer():
                return as_expr(self._value(expr))
            case SglReasoning():
                return replace(expr, gen=self._bound(expr.gen))
            case SglDeferred():
                values = {name: self._value(value) for name, value in expr.arguments.items()}
                made = PRIMITIVES[expr.primitive](**values)
                assert isinstance(made, (SglGen, SglSelect))
                return replace(made, location=expr.location)
            case _:
                return expr

    def _promised(self, variable: Variable, expr: SglVariable) -> SglExpr:
        if self._graph.waits:
            return as_expr(self._value(expr))
        self._waits.append(lambda: texts_of(variable.ready().wait(), expr.items))
        return SglPromised(variable, expr.items)

    def _join(self, node: JoinNode) -> None:
        group = self._groups[node.state, node.children]
        if self._graph.waits:
            group.join(node.mode, node.on_error)
        else:
            self._waits.append(group.join_later(node.mode, node.on_error).wait)

    def _set(self, node: SetNode) -> None:
        state = self._states[node.state]
        if isinstance(node.value, SglVariable) and not node.value.items and not self._graph.waits:
            source = self._variables[node.value.node]
            alias = Variable(node.name, source.kick)
            alias.promise = source.promise
            state.stream.variables.declare(alias)
            self._waits.append(lambda: source.ready().wait())
        else:
            state.set_var(node.name, self._value(node.value))

    def _begin(self, node: BeginNode) -> None:
        given = {name: self._value(value) for name, value in node.options.items()}
        start = launch(_no_body(node.program), (), {}, RunOptions(**given))
        context = ExitStack()
        context.enter_context(running(start, is_async=False))
        self._programs.push(context.__exit__)
        self._ends[node.state] = context
        self._states[node.state] = start.state

    def _end(self, node: EndNode) -> None:
        program = self._states[node.state].stream.program

        def returned() -> None:
            program.ret_value = self._value(node.value)

        if self._graph.waits:
            returned()
        else:
            self._waits.append(returned)
        self._ends.pop(node.state).close()

    def _ask(self, index: int, node: AskNode) -> None:
        state = self._states[node.state]
        answer: Wait
        if node.name is not None:
            answer = _OfVariable(_named(state, node.name), node.what)
        elif node.what == "usage":  # a state that has failed answers too
            total = state.stream.node.total
            self._wait()  # it counts what the lines before have waited for
            answer = ask(state.stream, lambda _: total(), lambda _: total()).wait
        else:
            answer = ask(state.stream, _QUESTIONS[node.what]).wait
        self._answers[index] = answer
        if self._graph.waits:
            answer()
        else:
            self._waits.append(answer)

    def _value(self, value: Any) -> Any:
        """A value with everything abstract in it replaced; waits for what is still to come."""
        match value:
            case SglArgument():
                return self._arguments[value.name]
            case SglVariable():
                return picked(self._variables[value.node].ready().wait(), value.items)
            case SglAnswer():
                return self._answers[value.node]()
            case SglStateRef():
                return self._states[value.number]
            case SglConstantText():
                return value.value
            case SglText():  # values that are no text may be added too
                return reduce(add, map(self._value, value.expr_list))
            case list() | tuple():
                return type(value)([self._value(item) for item in value])
            case dict():
                return {key: self._value(item) for key, item in value.items()}
            case _:
                return value


class _OfVariable:
    """Text, meta_info or usage of a variable, also where the text is no value of its form."""

    def __init__(self, variable: Variable, what: str) -> None:
        self._variable = variable
        self._what = what

    def __call__(self) -> Any:
        try:
            self._variable.ready().wait()
        except GenerationError:
            if self._variable.texts is None:
                raise
        if self._what == "usage":
            usage = self._variable.usage
            return Usage() if usage is None else replace(usage)
        return self._variable.text if self._what == "text" else self._variable.meta


def _named(state: ProgramState, name: str | None) -> Variable:
    variable = state.stream.variables.get(name)
    if variable is None:
        raise UnknownVariableError(f"no variable {name!r}: nothing in the graph sets it before.")
    return variable


def _no_body(name: str) -> Callable[[ProgramState], None]:
    """A body whose lines are nodes; runs and their errors have its name."""

    def body(state: ProgramState) -> None:
        return None

    body.__name__ = name
    return body


_QUESTIONS: dict[str, Callable[[Stream], Any]] = {
    "text": text_of,
    "messages": messages_of,
    "sync": nothing_of,
}
