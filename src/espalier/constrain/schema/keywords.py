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
from espalier.constrain.schema.node import Node
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


def _types(value: Any, node: Node) -> frozenset[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names or not all(name in TYPES for name in names):
        allowed = ", ".join(repr(name) for name in TYPES)
        raise malformed("type", node.path, value, f"one of {allowed}, or a list of them")
    return frozenset(names)


def _enum(value: Any, node: Node) -> list[Any]:
    if not isinstance(value, list):
        raise malformed("enum", node.path, value, "a list of values")
    return value


def _count(keyword: str) -> Callable[[Any, Node], int]:
    def read(value: Any, node: Node) -> int:
        whole = isinstance(value, int) or (isinstance(value, Decimal) and value % 1 == 0)
        if not whole or isinstance(value, bool) or value < 0:
            raise malformed(keyword, node.path, value, "an integer that is not negative")
        return int(value)

    return read


def _number(keyword: str) -> Callable[[Any, Node], Fraction]:
    def read(value: Any, node: Node) -> Fraction:
        if not isinstance(value, (int, Decimal)) or isinstance(value, bool):
            raise malformed(keyword, node.path, value, "a number")
        if keyword == "multipleOf" and value <= 0:
            raise malformed(keyword, node.path, value, "a number above 0")
        return Fraction(value)

    return read


def _pattern(value: Any, node: Node) -> Texts:
    if not isinstance(value, str):
        raise malformed("pattern", node.path, value, "a regular expression as a string")
    return parsed_pattern("pattern", value, node)


@lru_cache(maxsize=512)
def _texts_of(source: str) -> Texts:
    return Texts(parse_ecma_regex(source))


def parsed_pattern(keyword: str, source: str, node: Node) -> Texts:
    """The texts in which an ECMA-262 expression is found; refused by name where that fails."""
    try:
        return _texts_of(source)
    except UserInputError as error:
        raise refusal(keyword, node.path, str(error).rstrip(".")) from None


def _format(value: Any, node: Node) -> str:
    if not isinstance(value, str):
        raise malformed("format", node.path, value, "the name of a format as a string")
    if value not in FORMATS:
        raise refusal(
            "format", node.path, f"{shown(value)} is not enforced; {', '.join(sorted(FORMATS))} are"
        )
    return value


def _flag(value: Any, node: Node) -> bool:
    if not isinstance(value, bool):
        raise malformed("uniqueItems", node.path, value, "true or false")
    return value


def names_list(keyword: str, value: Any, node: Node) -> list[str]:
    """A list of property names without repetitions."""
    if (
        not isinstance(value, list)
        or not all(isinstance(name, str) for name in value)
        or len(set(value)) < len(value)
    ):
        raise malformed(keyword, node.path, value, "a list of different strings")
    return value


def _required(value: Any, node: Node) -> list[str]:
    return names_list("required", value, node)


def _dependent_required(value: Any, node: Node) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        raise malformed("dependentRequired", node.path, value, "an object of lists of strings")
    return {name: names_list("dependentRequired", names, node) for name, names in value.items()}


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

# Keyword -> what reads its value, given its Node for messages.
VALUE_READERS: dict[str, Callable[[Any, Node], Any]] = {
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
