"""JSON schemas of Python types, and values of the types from JSON text, by pydantic."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from espalier.errors import UnsupportedError, UserInputError, shown


def json_type(kind: Any) -> tuple[str, Callable[[str], Any]]:
    """The schema of a type as JSON text, and what makes a value of the type of JSON text.

    `kind` is a pydantic model, a dataclass, or a type such as `list[int]`. Objects whose type says
    nothing about further fields have none: pydantic would ignore them, so they would be wasted.
    Raises UserInputError for what has no schema, UnsupportedError without pydantic.
    """
    try:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticUserError
    except ImportError:
        raise UnsupportedError(
            f"json_schema is {shown(kind)}; a type needs pydantic, which is not installed. Install "
            "it (pip install 'espalier-lm[types]'), or give the schema as a dict or JSON text."
        ) from None
    if inspect.isroutine(kind):  # pydantic would call it with what was generated
        raise UserInputError(
            f"json_schema is {shown(kind)}, a function; JSON text, a dict, a pydantic model or a "
            "type is allowed."
        )
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        schema = adapter.json_schema()
    except (PydanticUserError, TypeError, ValueError) as error:
        raise UserInputError(
            f"json_schema is {shown(kind)}; JSON text, a dict, a pydantic model or a type that "
            f"pydantic has a schema for is allowed ({_first_line(error)})."
        ) from error
    _close_objects(schema)
    return json.dumps(schema, ensure_ascii=False), adapter.validate_json


def _close_objects(schema: Any) -> None:
    """Forbids further properties in every object that lists its own and says nothing of others."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if "properties" in node and node.get("type") == "object":
                node.setdefault("additionalProperties", False)
            waiting += [value for key, value in node.items() if key not in _VALUES]
        elif isinstance(node, list):
            waiting += node


_VALUES = ("default", "const", "enum", "examples")


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].rstrip(".")
