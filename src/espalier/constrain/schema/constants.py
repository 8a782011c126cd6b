"""JSON values as schemas that allow nothing else."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from espalier.constrain.schema.node import NEVER_NODE, Node


def kind_of(value: Any) -> str:
    """The kind of a JSON value, one of KINDS."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, Decimal)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def constant_node(value: Any) -> Node:
    """A schema of one value."""
    node = Node(None, "")
    kind = kind_of(value)
    if kind == "array":
        node.keywords = {
            "type": frozenset(("array",)),
            "minItems": len(value),
            "prefixItems": [constant_node(item) for item in value],
            "items": NEVER_NODE,
        }
    elif kind == "object":
        node.keywords = {
            "type": frozenset(("object",)),
            "properties": {name: constant_node(item) for name, item in value.items()},
            "required": list(value),
            "additionalProperties": NEVER_NODE,
        }
    else:
        node.keywords = {"const": [value]}
    return node
