"""The form that an output must have, in the reference's wire format of sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from espalier.constraint import Constraint, ConstraintKind, JsonWhitespace, json_text
from espalier.errors import SamplingError

_KINDS = {
    "regex": ConstraintKind.REGEX,
    "json_schema": ConstraintKind.JSON_SCHEMA,
    "ebnf": ConstraintKind.EBNF,
    "lark": ConstraintKind.LARK,
    "choices": ConstraintKind.CHOICES,
    "tool_calls": ConstraintKind.TOOL_CALLS,
}
_AS_JSON = ("json_schema", "choices", "tool_calls")  # may be values in place of JSON text
_WHITESPACE = "json_whitespace"


def split_constraint(params: Mapping[str, Any]) -> tuple[dict[str, Any], Constraint | None]:
    """Sampling parameters without the form, and the form.

    `regex`, `json_schema`, `ebnf` are the reference's names; `lark`, `choices`, `tool_calls` and
    `json_whitespace` are ours. Raises SamplingError for more than one form.
    """
    rest = dict(params)
    given = {name: rest.pop(name) for name in _KINDS if name in rest}
    given = {name: value for name, value in given.items() if value is not None}
    whitespace = rest.pop(_WHITESPACE, None)
    if len(given) > 1:
        raise SamplingError(
            f"sampling_params has {' and '.join(given)}; an output has one form, so leave all but "
            "one out."
        )
    if whitespace is not None and "json_schema" not in given:
        raise SamplingError(f"sampling_params has {_WHITESPACE} without json_schema; leave it out.")
    if not given:
        return rest, None
    ((name, value),) = given.items()
    text = (
        value
        if isinstance(value, str) or name not in _AS_JSON
        else json_text(name, value, SamplingError)
    )
    space = JsonWhitespace.COMPACT if whitespace is None else whitespace
    return rest, Constraint(_KINDS[name], text, space)
