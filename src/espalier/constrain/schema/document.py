"""Schema text as a JSON value: strict reading, within limits of size and depth.

Knows JSON and no keyword.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from espalier.errors import UserInputError, shown

MAX_SCHEMA_CHARS = 500_000
MAX_SCHEMA_DEPTH = 100  # arrays and objects inside each other
MAX_EXPONENT = 400  # of numbers in a schema; a double ends at 308


def read_document(schema: str | dict[str, Any] | bool) -> Any:
    """The JSON value of a schema given as JSON text or as a value; floats become Decimal.

    Raises UserInputError for text that is no JSON, names a key twice, or exceeds a limit.
    """
    text = schema if isinstance(schema, str) else document_text(schema)
    if len(text) > MAX_SCHEMA_CHARS:
        raise UserInputError(
            f"The JSON schema has {len(text)} characters; at most {MAX_SCHEMA_CHARS} are allowed."
        )
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise UserInputError(f"The JSON schema is not valid JSON: {error}.") from None
    _check_depth(value)
    return value


def document_text(schema: object) -> str:
    """A schema value as JSON text. Raises UserInputError for one that JSON cannot express."""
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except RecursionError:
        raise _too_deep() from None
    except (TypeError, ValueError) as error:
        raise UserInputError(
            f"The JSON schema {shown(schema)} cannot be written as JSON: {error}."
        ) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} appears twice in one object")
    return members


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _decimal(text: str) -> Decimal:
    number = Decimal(text)
    if number and abs(number.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"the number {shown(text)} is out of range")
    return number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_decimal, parse_constant=_constant
)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        following: list[Any] = []
        for item in level:
            if type(item) is dict:
                following.extend(item.values())
            elif type(item) is list:
                following.extend(item)
        if not following:
            return
        level = following
    raise _too_deep()


def _too_deep() -> UserInputError:
    return UserInputError(
        f"The JSON schema is nested too deeply; at most {MAX_SCHEMA_DEPTH} arrays and objects "
        "inside each other are allowed."
    )
