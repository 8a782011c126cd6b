"""Which schemas the llguidance library (1.9) enforces in full: for those that are no pattern.

An allow-list, found by the conformance suite and by attacks on single keywords. Known gaps of the
library, which is given what is left: unknown keywords are ignored; a further property of an open
object may spell a name that the schema mentions with escapes, and so escape its schema; the same
name may count twice for minProperties; exclusive bounds may be met by rounding; `.` and `\\S` match
what ECMA-262 excludes; dates, times and host names may be wrong.
"""

from __future__ import annotations

from typing import Any

from espalier.constrain.schema.node import CheckedSchema, Node
from espalier.constrain.schema.refusal import refusal

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
_FORMATS = frozenset(("uuid", "ipv4", "ipv6", "duration"))


def llguidance_can_enforce(checked: CheckedSchema) -> None:
    """Raises UserInputError, which names keyword and place, where the library may not enforce."""
    seen = {checked.root}
    pending = [checked.root]
    while pending:
        node = pending.pop()
        _check(node)
        for child in _children(node.keywords):
            if child not in seen:
                seen.add(child)
                pending.append(child)


def _check(node: Node) -> None:
    keywords = node.keywords
    for keyword, value in keywords.items():
        if keyword == "format" and value in _FORMATS and _is_string(keywords):
            continue
        if keyword not in _ENFORCED:
            raise refusal(
                keyword, node.path, "it is not enforced in a schema that is recursive or open"
            )
    mentions = "properties" in keywords or "required" in keywords
    if mentions and not _is_closed(keywords):
        raise refusal(
            "properties",
            node.path,
            "an object with further properties of any name is not enforced in a schema that is "
            "recursive or open; set additionalProperties to false",
        )


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
