"""JSON schemas as patterns: every keyword is enforced, or the schema is refused by name."""

from __future__ import annotations

from typing import Any

from espalier.constrain.pattern import NOTHING, Pattern
from espalier.constrain.schema.builder import Builder
from espalier.constrain.schema.check import check_schema
from espalier.constrain.schema.layout import Layout
from espalier.constrain.schema.llguidance_honesty import keywords_are_enforced
from espalier.constrain.schema.node import CheckedSchema, goal_of
from espalier.constrain.schema.refusal import NotRegular, refusal
from espalier.constraint import JsonWhitespace
from espalier.errors import UserInputError

__all__ = [
    "MAX_RECURSION",
    "CheckedSchema",
    "NotRegular",
    "bounded_schema_pattern",
    "check_schema",
    "llguidance_enforces",
    "schema_pattern",
]

MAX_RECURSION = 16  # schemas that stand inside themselves, inside each other, where bounded


def schema_pattern(
    schema: str | dict[str, Any] | bool | CheckedSchema,
    whitespace: JsonWhitespace = JsonWhitespace.COMPACT,
    *,
    max_recursion: int | None = None,
) -> Pattern:
    """JSON texts of the values that a schema allows, in one spelling (docs/json-schema.md).

    `max_recursion`: of schemas that stand inside themselves, as any JSON value does, so many may
    stand inside each other. Every text is valid by the schema; what the spelling leaves out is
    documented. Raises UserInputError for a schema that cannot be read or that plainly allows no
    value, and NotRegular where its values nest without end and no `max_recursion` is given, or
    need more than patterns can say.
    """
    checked = schema if isinstance(schema, CheckedSchema) else check_schema(schema)
    builder = Builder(Layout(whitespace), max_recursion)
    try:
        found = builder.build(goal_of(checked.root))
    except RecursionError:  # below all limits on their own, and too much together
        raise UserInputError(
            "The JSON schema nests too many schemas, references and negations in each other; "
            "fewer are allowed."
        ) from None
    if found == NOTHING:
        raise UserInputError(
            "The JSON schema allows no value: its keywords contradict each other, its values never "
            "end, or it is false."
        )
    return found


def bounded_schema_pattern(
    checked: CheckedSchema, whitespace: JsonWhitespace = JsonWhitespace.COMPACT
) -> Pattern:
    """The pattern of a schema whose values nest without end, for those that nest to a bound.

    Raises UserInputError, which names the keyword, for a schema that has no pattern even so.
    """
    try:
        return schema_pattern(checked, whitespace, max_recursion=MAX_RECURSION)
    except NotRegular as error:
        raise refusal(error.keyword, error.path, error.reason) from None


def llguidance_enforces(checked: CheckedSchema) -> bool:
    """The library enforces every keyword of the schema, as far as is known, and ends its values.

    It would begin a value that stands inside itself without end, and never finish it.
    """
    if not keywords_are_enforced(checked):
        return False
    builder = Builder(Layout(JsonWhitespace.COMPACT), MAX_RECURSION)
    try:
        builder.build(goal_of(checked.root))
        return not builder.has_endless_goals()
    except (NotRegular, UserInputError, RecursionError):
        return True  # beyond what patterns can tell
