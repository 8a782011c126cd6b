"""Graphs as JSON values and back.

What has no JSON form (a Python type as schema, a choices method of the user's own, a value that is
no JSON) raises UserInputError and names it. The format is Espalier's own; `version` tells it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from espalier.constraint import Constraint, ConstraintKind, JsonWhitespace
from espalier.errors import UserInputError, shown
from espalier.lang import choices
from espalier.lang.abstract import SglAnswer, SglArgument, SglDeferred, SglStateRef, SglVariable
from espalier.lang.form import Form, json_reader
from espalier.lang.graph import (
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
)
from espalier.lang.ir import (
    SglConstantText,
    SglExpr,
    SglExprList,
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

VERSION = 1
MAX_DEPTH = 100  # of values in values

# Kinds whose fields are plain JSON values, or values that `_to_value` knows.
_EXPRS: dict[str, type[SglExpr]] = {
    "constant": SglConstantText,
    "argument": SglArgument,
    "variable": SglVariable,
    "answer": SglAnswer,
    "state": SglStateRef,
    "role_begin": SglRoleBegin,
    "role_end": SglRoleEnd,
    "scope_begin": SglVarScopeBegin,
    "scope_end": SglVarScopeEnd,
    "list": SglExprList,
    "deferred": SglDeferred,
    "gen": SglGen,
    "reasoning": SglReasoning,
    "reasoning_variable": SglReasoningVariable,
    "select": SglSelect,
}
_NODES: dict[str, type[Node]] = {
    "append": AppendNode,
    "fork": ForkNode,
    "fork_item": ForkItemNode,
    "join": JoinNode,
    "set": SetNode,
    "begin": BeginNode,
    "end": EndNode,
    "ask": AskNode,
    "dropped": DroppedNode,
}
_KIND_OF: dict[type, str] = {made: kind for kind, made in (*_EXPRS.items(), *_NODES.items())}
_METHODS: dict[str, Any] = {
    name: getattr(choices, name)
    for name in (
        "token_length_normalized",
        "greedy_token_selection",
        "unconditional_likelihood_normalized",
    )
}
_GRAPH_FIELDS = ("program", "arguments", "variables", "value", "defaults", "waits", "outputs")


def graph_to_json(graph: Graph) -> dict[str, Any]:
    """The graph as values that `json.dumps` takes; raises UserInputError."""
    found: dict[str, Any] = {"version": VERSION}
    found.update({name: _to_value(getattr(graph, name), 0) for name in _GRAPH_FIELDS})
    found["nodes"] = [_to_value(node, 0) for node in graph.nodes]
    return found


def graph_from_json(values: Mapping[str, Any]) -> Graph:
    """The graph that `graph_to_json` gave; raises UserInputError for anything else."""
    if not isinstance(values, Mapping) or values.get("version") != VERSION:
        raise UserInputError(
            f"the graph is {shown(values)}; an object with version {VERSION}, as graph_to_json "
            "gives it, is allowed."
        )
    try:
        given = {name: _from_value(values[name]) for name in _GRAPH_FIELDS}
        nodes = tuple(_from_value(node) for node in values["nodes"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserInputError(
            f"the graph has a part that is missing or of the wrong kind: {error!r}."
        ) from error
    if not all(isinstance(node, Node) for node in nodes):
        raise UserInputError("the graph has a node that is none.")
    return Graph(nodes=nodes, **given)


def _to_value(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise UserInputError(f"a value of the graph nests more than {MAX_DEPTH} deep.")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    kind = _KIND_OF.get(type(value))
    if kind is not None:
        fields = {
            name: _to_value(getattr(value, name), depth + 1) for name in value.__dataclass_fields__
        }
        return {"kind": kind, **fields}
    special = _SPECIAL.get(type(value))
    if special is not None:
        return special(value)
    if callable(value):
        return _method_to_value(value)
    if isinstance(value, (list, tuple)):
        items = [_to_value(item, depth + 1) for item in value]
        return items if isinstance(value, list) else {"kind": "tuple", "items": items}
    if isinstance(value, Mapping):
        pairs = [[_to_value(k, depth + 1), _to_value(v, depth + 1)] for k, v in value.items()]
        return {"kind": "dict", "pairs": pairs}
    raise UserInputError(f"the graph holds {shown(value)}, which has no JSON form.")


def _place_to_value(place: SourceLine) -> dict[str, Any]:
    return {"kind": "line", "file": place.file, "line": place.line}


def _form_to_value(form: Form) -> dict[str, Any]:
    if form.read is not None and form.read is not json_reader:
        raise UserInputError(
            "a gen has a Python type as its json_schema, which has no JSON form; give the schema "
            "as a dict."
        )
    constraint = form.constraint
    return {
        "kind": "form",
        "constraint": constraint.kind.value,
        "text": constraint.text,
        "whitespace": constraint.whitespace.value,
        "reads_json": form.read is not None,
    }


_SPECIAL: dict[type, Callable[[Any], dict[str, Any]]] = {
    SourceLine: _place_to_value,
    Form: _form_to_value,
}


def _method_to_value(method: Any) -> dict[str, Any]:
    for name, known in _METHODS.items():
        if method is known:
            return {"kind": "method", "name": name}
    raise UserInputError(
        f"a select has the choices_method {shown(method)}, which has no JSON form."
    )


def _from_value(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_value(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    kind = value["kind"]
    if kind == "tuple":
        return tuple(_from_value(item) for item in value["items"])
    if kind == "dict":
        return {_from_value(key): _from_value(item) for key, item in value["pairs"]}
    if kind == "line":
        return SourceLine(value["file"], value["line"])
    if kind == "form":
        return _form_from_value(value)
    if kind == "method":
        return _METHODS[value["name"]]
    made: Any = {**_EXPRS, **_NODES}[kind]
    return made(**{name: _from_value(item) for name, item in value.items() if name != "kind"})


def _form_from_value(value: Mapping[str, Any]) -> Form:
    constraint = Constraint(
        ConstraintKind(value["constraint"]), value["text"], JsonWhitespace(value["whitespace"])
    )
    return Form(constraint, json_reader if value["reads_json"] else None)


def same_graph(first: Graph, second: Graph) -> bool:
    """True where two graphs say the same; abstract values cannot be compared by themselves."""
    return graph_to_json(first) == graph_to_json(second)
