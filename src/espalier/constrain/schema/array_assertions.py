"""What the keywords of arrays assert by themselves, and the opposite."""

from __future__ import annotations

from typing import Any

from espalier.constrain.schema.arrays import ANY_ARRAY, Arrays, Some
from espalier.constrain.schema.node import Goal, Node, goal_of
from espalier.constrain.schema.refusal import NotRegular

_KEYWORDS = frozenset(
    ("prefixItems", "items", "minItems", "maxItems", "contains", "uniqueItems", "unevaluatedItems")
)


def array_sets(keywords: dict[str, Any]) -> tuple[Arrays, ...]:
    """The set of arrays that a node's own keywords allow."""
    if _KEYWORDS.isdisjoint(keywords):
        return (ANY_ARRAY,)
    some: tuple[Some, ...] = ()
    if "contains" in keywords:
        low, high = keywords.get("minContains", 1), keywords.get("maxContains")
        if low > 0 or high is not None:
            some = (Some(goal_of(keywords["contains"]), low, high),)
    return (
        Arrays(
            tuple(goal_of(item) for item in keywords.get("prefixItems", ())),
            goal_of(keywords["items"]) if "items" in keywords else (),
            keywords.get("minItems", 0),
            keywords.get("maxItems"),
            some,
            keywords.get("uniqueItems", False),
        ),
    )


def denied_arrays(node: Node) -> list[Arrays]:
    """Sets whose union a node's own keywords forbid."""
    keywords = node.keywords
    found = []
    prefix = keywords.get("prefixItems", ())
    anything: Goal = ()
    for index, item in enumerate(prefix):
        if not item.allows_all:
            goals = (*((anything,) * index), goal_of(item.negation))
            found.append(Arrays(prefix=goals, low=index + 1))
    if "items" in keywords and not keywords["items"].allows_all:
        denied = goal_of(keywords["items"].negation)
        if not denied:
            found.append(Arrays(low=len(prefix) + 1))
        else:
            found.append(Arrays(some=(Some(denied, start=len(prefix)),)))
    if keywords.get("minItems", 0) > 0:
        found.append(Arrays(high=keywords["minItems"] - 1))
    if "maxItems" in keywords:
        found.append(Arrays(low=keywords["maxItems"] + 1))
    if "contains" in keywords:
        low, high = keywords.get("minContains", 1), keywords.get("maxContains")
        if low == 1:
            found.append(Arrays(rest=goal_of(keywords["contains"].negation)))
        elif low > 1:
            found.append(Arrays(some=(Some(goal_of(keywords["contains"]), 0, low - 1),)))
        if high is not None:
            found.append(Arrays(some=(Some(goal_of(keywords["contains"]), high + 1),)))
    if keywords.get("uniqueItems"):
        raise NotRegular("uniqueItems", node.path, "it cannot be negated")
    return found
