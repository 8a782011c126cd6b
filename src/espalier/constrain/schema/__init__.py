"""JSON schemas as patterns: every keyword is enforced, or the schema is refused by name."""

from __future__ import annotations

from typing import Any

from espalier.constrain.pattern import NOTHING, Pattern
from espalier.constrain.schema.builder import Builder
from espalier.constrain.schema.check import check_schema
from espalier.constrain.schema.layout import Layout
from espalier.constrain.schema.node import CheckedSchema, goal_of
from espalier.constrain.schema.refusal import NotRegular
from espalier.constraint import JsonWhitespace
from espalier.errors import UserInputError

__all__ = ["CheckedSchema", "NotRegular", "check_schema", "schema_pattern"]


def schema_pattern(
    schema: str | dict[str, Any] | bool | CheckedSchema,
    whitespace: JsonWhitespace = JsonWhitespace.COMPACT,
    *,
    closes_objects: bool = False,
    max_recursion: int | None = None,
) -> Pattern:
    """JSON texts of the values that a schema allows, in one spelling (docs/json-schema.md).

    `closes_objects`: objects with properties that do not say which others there may be have no
    others. `max_recursion`: how often a schema, and any JSON value, may stand inside itself.
    Every text is valid by the schema; what the spelling leaves out is documented. Raises
    UserInputError for a schema that cannot be read or enforced or that plainly allows no value,
    and NotRegular where its values nest without end and no `max_recursion` is given, or need more
    than patterns can say.
    """
    checked = schema if isinstance(schema, CheckedSchema) else check_schema(schema)
    builder = Builder(Layout(whitespace), closes_objects, max_recursion)
    try:
        found = builder.pattern(goal_of(checked.root), 0)
    except RecursionError:  # below all limits on their own, and too much together
        raise UserInputError(
            "The JSON schema nests too many schemas, references and negations in each other; "
            "fewer are allowed."
        ) from None
    if found == NOTHING:
        raise UserInputError(
            "The JSON schema allows no value: its keywords contradict each other, or it is false."
        )
    return found
