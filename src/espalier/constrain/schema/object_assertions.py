"""What the keywords of objects assert by themselves, and the opposite."""

from __future__ import annotations

from typing import Any, Protocol

from espalier.constrain.pattern import ANY_TEXT, Pattern
from espalier.constrain.schema.construct import either, without
from espalier.constrain.schema.node import NEVER, Goal, Node, goal_of
from espalier.constrain.schema.objects import ANY_OBJECT, Names, Objects
from espalier.constrain.schema.strings import Strings
from espalier.constrain.schema.texts import Texts


class _Alternatives(Protocol):
    def alternatives(self, goal: Goal, kind: str) -> tuple[Any, ...]: ...


_KEYWORDS = frozenset(
    [
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "required",
        "minProperties",
        "maxProperties",
        "dependentRequired",
        "unevaluatedProperties",
    ]
)


def object_sets(node: Node, expander: _Alternatives) -> tuple[Objects, ...]:
    """Sets of objects whose union a node's own keywords allow."""
    keywords = node.keywords
    if _KEYWORDS.isdisjoint(keywords):
        return (ANY_OBJECT,)
    properties = keywords.get("properties", {})
    named = {name: goal_of(child) for name, child in properties.items()}
    required = keywords.get("required", ())
    for name in required:
        named.setdefault(name, ())
    every: list[tuple[Names, Goal]] = [
        (Names(pattern), goal_of(child))
        for pattern, child in keywords.get("patternProperties", ())
        if not child.allows_all
    ]
    if "additionalProperties" in keywords:
        goal = goal_of(keywords["additionalProperties"])
        if goal:
            every.append((_additional(keywords), goal))
    if "propertyNames" in keywords:
        texts, finite = _name_texts(keywords["propertyNames"], expander)
        if finite is not None:
            for name in finite:
                named.setdefault(name, ())
            every.append((Names(but_names=frozenset(finite)), NEVER))
        else:
            every.append((Names(Texts(without(ANY_TEXT, texts))), NEVER))
    found = Objects(
        tuple(named.items()),
        tuple(every),
        frozenset(required),
        (),
        keywords.get("minProperties", 0),
        keywords.get("maxProperties"),
    )
    sets = [found]
    for name, names in keywords.get("dependentRequired", {}).items():
        absent = Objects(named=((name, NEVER),))
        present = Objects(required=frozenset((name, *names)))
        sets = [item.meet(other) for item in sets for other in (absent, present)]
    return tuple(sets)


def _additional(keywords: dict[str, Any]) -> Names:
    """Names that neither `properties` nor `patternProperties` have."""
    patterns = tuple(pattern for pattern, _ in keywords.get("patternProperties", ()))
    return Names(None, frozenset(keywords.get("properties", ())), patterns)


def _name_texts(node: Node, expander: _Alternatives) -> tuple[Pattern, tuple[str, ...] | None]:
    """Names that a schema of names allows: as a pattern, and one by one where they are few."""
    sets: tuple[Strings, ...] = expander.alternatives(goal_of(node), "string")
    finite: dict[str, None] | None = {}
    for item in sets:
        if item.values is None or finite is None:
            finite = None
        else:
            finite.update(dict.fromkeys(item.values))
    return either(item.texts for item in sets), None if finite is None else tuple(finite)


def denied_objects(node: Node, expander: _Alternatives) -> list[Objects]:
    """Sets whose union a node's own keywords forbid."""
    keywords = node.keywords
    found = []
    for name, child in keywords.get("properties", {}).items():
        if not child.allows_all:
            denied = goal_of(child.negation)
            found.append(Objects(named=((name, denied),), required=frozenset((name,))))
    for pattern, child in keywords.get("patternProperties", ()):
        if not child.allows_all:
            found.append(Objects(some=((Names(pattern), goal_of(child.negation)),)))
    if "additionalProperties" in keywords and not keywords["additionalProperties"].allows_all:
        denied = goal_of(keywords["additionalProperties"].negation)
        found.append(Objects(some=((_additional(keywords), denied),)))
    if "propertyNames" in keywords:
        texts, _ = _name_texts(keywords["propertyNames"], expander)
        found.append(Objects(some=((Names(Texts(without(ANY_TEXT, texts))), ()),)))
    found += [Objects(named=((name, NEVER),)) for name in keywords.get("required", ())]
    if keywords.get("minProperties", 0) > 0:
        found.append(Objects(high=keywords["minProperties"] - 1))
    if "maxProperties" in keywords:
        found.append(Objects(low=keywords["maxProperties"] + 1))
    for name, names in keywords.get("dependentRequired", {}).items():
        found += [
            Objects(named=((other, NEVER),), required=frozenset((name,)))
            for other in names
            if other != name
        ]
    return found
