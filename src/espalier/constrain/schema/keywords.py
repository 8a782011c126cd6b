"""The keywords of the drafts: which are read here, and what their values may be.

Owns the tables and the reading of values that hold no subschema. Enforces nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from espalier.constrain.schema.ecma_regex import parse_ecma_regex
from espalier.constrain.schema.formats import FORMATS
from espalier.constrain.schema.refusal import malformed, refusal
from espalier.constrain.schema.texts import Texts
from espalier.errors import UserInputError, shown

DRAFT_7 = "draft-07"
DRAFT_2020 = "2020-12"

SCHEMA_URIS = {
    "http://json-schema.org/draft-07/schema": DRAFT_7,
    "https://json-schema.org/draft-07/schema": DRAFT_7,
    "https://json-schema.org/draft/2020-12/schema": DRAFT_2020,
    "http://json-schema.org/draft/2020-12/schema": DRAFT_2020,
}

# Say something about a value and assert nothing, by their specification. The last four are
# OpenAPI's, where `discriminator` is a hint that stands beside a oneOf.
ANNOTATIONS = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "$comment",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "$vocabulary",
        "discriminator",
        "example",
        "externalDocs",
        "xml",
    ]
)
ASSERTED_IN_DRAFT_7 = frozenset(("contentEncoding", "contentMediaType"))  # optionally

# Keywords of 2020-12 that draft 7 does not have.
NOT_IN_DRAFT_7 = frozenset(
    [
        "prefixItems",
        "dependentRequired",
        "dependentSchemas",
        "minContains",
        "maxContains",
        "unevaluatedItems",
        "unevaluatedProperties",
        "$anchor",
        "$dynamicAnchor",
        "$dynamicRef",
    ]
)

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

ONE_SCHEMA = frozenset(
    [
        "additionalProperties",
        "propertyNames",
        "contains",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
SCHEMA_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
SCHEMA_MAPS = frozenset(("properties", "patternProperties", "dependentSchemas"))
DEFINITIONS = frozenset(("$defs", "definitions"))


def _types(value: Any, path: str) -> frozenset[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(name in TYPES for name in names):
        allowed = ", ".join(repr(name) for name in TYPES)
        raise malformed("type", path, value, f"one of {allowed}, or a list of them")
    return frozenset(names)


def _enum(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise malformed("enum", path, value, "a list of values")
    return value


def _count(keyword: str) -> Callable[[Any, str], int]:
    def read(value: Any, path: str) -> int:
        whole = isinstance(value, int) or (isinstance(value, Decimal) and value % 1 == 0)
        if not whole or isinstance(value, bool) or value < 0:
            raise malformed(keyword, path, value, "an integer that is not negative")
        return int(value)

    return read


def _number(keyword: str) -> Callable[[Any, str], Fraction]:
    def read(value: Any, path: str) -> Fraction:
        if not isinstance(value, (int, Decimal)) or isinstance(value, bool):
            raise malformed(keyword, path, value, "a number")
        if keyword == "multipleOf" and value <= 0:
            raise malformed(keyword, path, value, "a number above 0")
        return Fraction(value)

    return read


def _pattern(value: Any, path: str) -> Texts:
    if not isinstance(value, str):
        raise malformed("pattern", path, value, "a regular expression as a string")
    return parsed_pattern("pattern", value, path)


@lru_cache(maxsize=512)
def _texts_of(source: str) -> Texts:
    return Texts(parse_ecma_regex(source))


def parsed_pattern(keyword: str, source: str, path: str) -> Texts:
    """The texts in which an ECMA-262 expression is found; refused by name where that fails."""
    try:
        return _texts_of(source)
    except UserInputError as error:
        raise refusal(keyword, path, str(error).rstrip(".")) from None


def _format(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise malformed("format", path, value, "the name of a format as a string")
    if value not in FORMATS:
        raise refusal(
            "format", path, f"{shown(value)} is not enforced; {', '.join(sorted(FORMATS))} are"
        )
    return value


def _flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise malformed("uniqueItems", path, value, "true or false")
    return value


def names_list(keyword: str, value: Any, path: str) -> list[str]:
    """A list of property names without repetitions."""
    if (
        not isinstance(value, list)
        or not all(isinstance(name, str) for name in value)
        or len(set(value)) < len(value)
    ):
        raise malformed(keyword, path, value, "a list of different strings")
    return value


def _required(value: Any, path: str) -> list[str]:
    return names_list("required", value, path)


def _dependent_required(value: Any, path: str) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise malformed("dependentRequired", path, value, "an object of lists of strings")
    return {name: names_list("dependentRequired", names, path) for name, names in value.items()}


_COUNTS = [
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
]
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")

# Keyword -> what reads its value, given the path for messages.
VALUE_READERS: dict[str, Callable[[Any, str], Any]] = {
    "type": _types,
    "enum": _enum,
    "pattern": _pattern,
    "format": _format,
    "uniqueItems": _flag,
    "required": _required,
    "dependentRequired": _dependent_required,
    **{keyword: _count(keyword) for keyword in _COUNTS},
    **{keyword: _number(keyword) for keyword in _NUMBERS},
}
