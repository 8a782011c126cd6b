"""Tracing: the body of a program runs once with values that are not known, and leaves a graph.

The body's Python code runs as always; only the state records instead of calling a model. So loops
over known values are unrolled, and what depends on a value that is not known raises TraceError.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from espalier.errors import EspalierError, ProgramError, TraceError
from espalier.lang.abstract import (
    Abstract,
    SglArgument,
    SglStateRef,
    active_tracer,
    not_traceable,
)
from espalier.lang.graph import ROOT, BeginNode, EndNode, Graph, Node
from espalier.lang.ir import SglExprList
from espalier.lang.location import SourceLine, call_site, is_own_module
from espalier.lang.traced_state import TracedState

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_NODES = 1_000_000


class StopTracing(BaseException):  # no handler of a body's own may catch it
    """Ends a trace that was asked for the beginning of a program only."""


class Tracer:
    """Records nodes. `only_constants` stops at the first node that needs a value.

    Attributes:
        nodes: what was recorded, in order.
        states: the states, by number.
    """

    def __init__(self, *, only_constants: bool = False) -> None:
        self.nodes: list[Node] = []
        self.states: list[TracedState] = []
        self.callers = [ROOT]  # own states of the programs that are being traced, innermost last
        self.only_constants = only_constants

    def new_state(self, parent: TracedState | None = None) -> TracedState:
        """Another state, a fork of `parent` where it is given."""
        state = TracedState(self, len(self.states), parent)
        self.states.append(state)
        return state

    def add(self, node: Node, *, is_constant: bool = False) -> int:
        """Records a node and returns its number."""
        if self.only_constants and not is_constant:
            raise StopTracing
        if len(self.nodes) >= MAX_NODES:
            raise ProgramError(
                f"the program has more than {MAX_NODES} steps; run it without tracing it."
            )
        self.nodes.append(node)
        return len(self.nodes) - 1

    def graph(self, function: Callable[..., Any], arguments: tuple[str, ...], value: Any) -> Graph:
        """What has been recorded."""
        parameters = inspect.signature(function).parameters
        return Graph(
            function.__name__,
            arguments,
            tuple(self.nodes),
            self.states[ROOT].named_variables(),
            kept_value(value),
            {
                name: parameters[name].default
                for name in arguments
                if parameters[name].default is not inspect.Parameter.empty
            },
        )

    def run_program(
        self,
        function: Callable[..., Any],
        arguments: tuple[tuple[Any, ...], dict[str, Any]],
        options: Mapping[str, Any],
    ) -> TracedState:
        """Traces a program that the traced program runs."""
        state = self.new_state()
        self.add(BeginNode(state.number, function.__name__, self.callers[-1], options))
        self.callers.append(state.number)
        try:
            args, kwargs = arguments
            state.ret_value = run_body(function, state, args, kwargs)
        finally:
            self.callers.pop()
        state.check_ended()
        self.add(EndNode(state.number, kept_value(state.ret_value)))
        return state


_PLAIN = (str, bytes, int, float, bool, type(None), SglExprList, Abstract)


def kept_value(value: Any) -> Any:
    """A return value as the graph keeps it: plain values, lists and dicts, states by number."""
    if isinstance(value, TracedState):
        return SglStateRef(value.number)
    if type(value) in (list, tuple):
        return type(value)(kept_value(item) for item in value)
    if type(value) is dict:
        return {key: kept_value(item) for key, item in value.items()}
    if isinstance(value, _PLAIN):
        return value
    raise not_traceable(
        f"the program returns a {type(value).__name__}; plain values, lists, tuples and dicts of "
        "them, and states can be returned where it is traced."
    )


class TracedProgram:
    """A traced program: its graph, and the reference's names for the parts of it (section 12)."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @property
    def nodes(self) -> list[Node]:
        """The nodes in order."""
        return list(self.graph.nodes)

    @property
    def variables(self) -> dict[str, Any]:
        """The variables of the program's state at its end."""
        return dict(self.graph.variables)

    @property
    def ret_value(self) -> Any:
        """What the program returned."""
        return self.graph.value

    @property
    def last_node(self) -> LastNode:
        """The end of the graph."""
        return LastNode(self.graph)


class LastNode:
    """The last node of a graph, from which all of it can be printed."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def print_graph_dfs(self) -> None:
        """Prints the graph."""
        print(self._graph)

    def __repr__(self) -> str:
        return repr(self._graph.nodes[-1]) if self._graph.nodes else "nothing"


def traced_arguments(
    function: Callable[..., Any], known: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], tuple[str, ...]]:
    """Positional and keyword arguments of a trace, and the names of those that are abstract.

    A parameter that is not known is abstract, unless its default is None, True or False: programs
    test such values with `is`, which cannot be seen; so these keep their defaults.
    """
    positional: list[Any] = []
    named: dict[str, Any] = {}
    abstract: list[str] = []
    left = dict(known)
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            named.update(left)
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            continue
        if parameter.name in left:
            value = left.pop(parameter.name)
        elif parameter.default is None or isinstance(parameter.default, bool):
            value = parameter.default
        else:
            value = SglArgument(parameter.name)
            abstract.append(parameter.name)
        if parameter.kind is parameter.KEYWORD_ONLY:
            named[parameter.name] = value
        else:
            positional.append(value)
    return tuple(positional), named, tuple(abstract)


def trace_function(function: Callable[..., Any], known: Mapping[str, Any]) -> Graph:
    """The graph of a program; `known` are values of arguments, the others are abstract.

    Raises TraceError, with the part before it as `graph`, where the program's course depends on a
    value that is not known; whatever else the body raises.
    """
    args, kwargs, abstract = traced_arguments(function, known)
    tracer = Tracer()
    state = tracer.new_state()
    with recording(tracer):
        try:
            value = run_body(function, state, args, kwargs)
        except TraceError as error:
            error.graph = tracer.graph(function, abstract, None)
            raise
    state.check_ended()
    return tracer.graph(function, abstract, value)


def trace_constants(
    function: Callable[..., Any], known: Mapping[str, Any]
) -> tuple[Graph, Exception | None]:
    """The constants and roles that the program appends before anything else, as a graph.

    A line that needs a value ends the trace; so does an exception of the body, which is returned.
    """
    args, kwargs, abstract = traced_arguments(function, known)
    tracer = Tracer(only_constants=True)
    state = tracer.new_state()
    unexpected: Exception | None = None
    with recording(tracer):
        try:
            run_body(function, state, args, kwargs)
        except (StopTracing, TraceError):
            pass  # as far as it goes
        except Exception as error:
            unexpected = error
    return tracer.graph(function, abstract, None), unexpected


@contextmanager
def recording(tracer: Tracer) -> Iterator[None]:
    """Makes primitives and programs of this context record into a tracer."""
    token = active_tracer.set(tracer)
    try:
        yield
    finally:
        active_tracer.reset(token)


def run_body(
    function: Callable[..., Any],
    state: TracedState,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Runs a body; an operation that Python refuses on an abstract value becomes a TraceError."""
    try:
        value = function(state, *args, **kwargs)
        return _finished(value) if inspect.iscoroutine(value) else value
    except EspalierError:
        raise
    except (TypeError, AttributeError) as error:
        place = _raised_at(error)
        raise not_traceable(
            f"{type(error).__name__}: {error} (while tracing, with values that are known only "
            "when the program runs). Append such values, or run the program without tracing it.",
            place,
        ) from error


def _finished(body: Any) -> Any:
    """The value of a coroutine that awaits nothing but the traced state."""
    try:
        body.send(None)
    except StopIteration as end:
        return end.value
    finally:
        body.close()
    raise not_traceable("the program awaits something besides its state, which is not traced.")


def _raised_at(error: BaseException) -> SourceLine | None:
    """The innermost line outside Espalier that an error went through."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if not is_own_module(frame.f_globals.get("__name__", "")):
            return SourceLine(frame.f_code.co_filename, line)
    return call_site()
