"""Which schemas the llguidance library (1.9) enforces in full: for those that are no pattern.

An allow-list, found by the conformance suite and by attacks on single keywords. What the library
lets through, and is therefore not given: unknown keywords; further properties of an open object
that spell a name which the schema mentions with escapes, and so escape its schema; one name twice
for minProperties; exclusive and large bounds, by rounding; `.` and `\\S` where ECMA-262 excludes
more; some dates, times and host names that are none.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from espalier.constrain.schema.node import CheckedSchema, Node

_ENFORCED = frozenset(
    [
        "$ref",
        "allOf",
        "anyOf",
        "type",
        "const",
        "enum",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "prefixItems",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "multipleOf",
    ]
)
MAX_EXACT = 2**53  # integers to here are doubles, in which the library keeps bounds

_SAYS_WHAT = frozenset(("type", "const", "enum", "$ref", "anyOf", "allOf"))
_FORMATS = frozenset(("uuid", "ipv4", "ipv6", "duration"))


def keywords_are_enforced(checked: CheckedSchema) -> bool:
    """The library enforces every keyword of the schema, as far as is known."""
    seen = {checked.root}
    pending = [checked.root]
    while pending:
        node = pending.pop()
        if not _is_enforced(node):
            return False
        for child in _children(node.keywords):
            if child not in seen:
                seen.add(child)
                pending.append(child)
    return True


def _is_enforced(node: Node) -> bool:
    keywords = node.keywords
    if not node.never and _SAYS_WHAT.isdisjoint(keywords):
        return False  # any JSON value, or an untyped one: objects in it may have any names
    for keyword, value in keywords.items():
        if isinstance(value, Fraction) and abs(value) > MAX_EXACT:
            return False
        if keyword not in _ENFORCED and not (
            keyword == "format" and value in _FORMATS and _is_string(keywords)
        ):
            return False
    is_object = "properties" in keywords or "required" in keywords
    return not is_object or _is_closed(keywords)


def _is_string(keywords: dict[str, Any]) -> bool:
    return keywords.get("type") == frozenset(("string",))


def _is_closed(keywords: dict[str, Any]) -> bool:
    further = keywords.get("additionalProperties")
    return isinstance(further, Node) and further.never


def _children(keywords: dict[str, Any]) -> list[Node]:
    found: list[Node] = []
    for value in keywords.values():
        items = value.values() if isinstance(value, dict) else value
        for item in items if isinstance(value, (dict, list)) else (value,):
            part = item[1] if isinstance(item, tuple) else item
            if isinstance(part, Node):
                found.append(part)
    return found
