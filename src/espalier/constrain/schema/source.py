"""Schemas from what a caller gives: JSON, or a Python type by way of pydantic; and values back.

pydantic is optional and only imported for types.
"""

from __future__ import annotations

import json
from typing import Any

from espalier.constrain.schema.document import document_text
from espalier.errors import UnsupportedError, UserInputError, shown


def schema_of(source: object) -> tuple[str, bool]:
    """The schema of a source as JSON text, and whether it closes objects that do not say.

    `source` is a schema (a dict, a bool, or JSON text) or a type that pydantic knows: a model, a
    dataclass, an Enum, `list[Person]`, `Literal["a", "b"]`. Types that ignore further properties
    have none in the output. Raises UserInputError for anything else, UnsupportedError for a type
    where pydantic is missing.
    """
    if isinstance(source, str):
        return source, False
    if isinstance(source, (dict, bool)):
        return document_text(source), False
    if source is None or isinstance(source, (int, float, list, tuple, set, bytes)):
        raise UserInputError(
            f"The JSON schema is {shown(source)}; a dict, JSON text, a pydantic model or another "
            "type is allowed."
        )
    try:
        schema = _adapter(source).json_schema(mode="validation")
    except UnsupportedError:
        raise
    except Exception as error:
        raise UserInputError(f"{shown(source)} has no JSON schema: {error}") from None
    return document_text(schema), True


def parse_value(source: object, text: str) -> Any:
    """The value that output text stands for: of the type that `source` is, else plain JSON.

    Raises UserInputError for text that is no such value, as text is that was cut short.
    """
    try:
        if isinstance(source, (str, dict, bool)):
            return json.loads(text)
        return _adapter(source).validate_json(text)
    except ValueError as error:
        raise UserInputError(
            f"The output {shown(text)} is not a value of the JSON schema: {error}. It may have "
            "been cut off; allow more tokens."
        ) from None


def _adapter(source: Any) -> Any:
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise UnsupportedError(
            f"A schema from the type {shown(source)} needs pydantic: install pydantic>=2, or give "
            "the schema as a dict."
        ) from None
    return TypeAdapter(source)
