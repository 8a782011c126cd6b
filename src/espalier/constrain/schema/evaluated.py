"""Which properties and items a schema evaluates, case by case: for `unevaluated...`.

What an applicator evaluates depends on which of its schemas hold, so a schema has several cases,
each with the goals that single it out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from espalier.constrain.schema.node import Goal, Node, goal_of, joined
from espalier.constrain.schema.objects import Names
from espalier.constrain.schema.refusal import NotRegular
from espalier.constrain.schema.texts import Texts

MAX_CASES = 64


@dataclass(frozen=True, slots=True)
class Case:
    """What is evaluated where some goals hold.

    Attributes:
        condition: goals of the value, beside the schema itself.
        names, patterns: property names that are evaluated; `all_names`: every one is.
        num_items: how many first items are evaluated; `all_items`: every one is.
        contained: items that satisfy one of these schemas are evaluated.
    """

    condition: Goal = ()
    names: frozenset[str] = frozenset()
    patterns: tuple[Texts, ...] = ()
    all_names: bool = False
    num_items: int = 0
    all_items: bool = False
    contained: tuple[Node, ...] = ()

    def also(self, other: Case) -> Case:
        """Both hold."""
        return Case(
            joined(self.condition, other.condition),
            self.names | other.names,
            self.patterns + other.patterns,
            self.all_names or other.all_names,
            max(self.num_items, other.num_items),
            self.all_items or other.all_items,
            self.contained + other.contained,
        )

    @property
    def rest(self) -> Names:
        """Property names that are not evaluated."""
        return Names(None, self.names, tuple(dict.fromkeys(self.patterns)))


def cases_of(node: Node, kind: str, *, with_unevaluated: bool = True) -> list[Case]:
    """The cases of a schema that holds for a value of a kind; together they cover every value.

    `with_unevaluated`: what the schema's own `unevaluated...` evaluate counts. Raises NotRegular
    where there are too many cases.
    """
    keywords = node.keywords
    cases = [_own_case(keywords, with_unevaluated)]
    for keyword, value in keywords.items():
        options: list[list[Case]] = []
        if keyword in ("$ref", "$dynamicRef"):
            options = [cases_of(value, kind)]
        elif keyword == "allOf":
            options = [cases_of(item, kind) for item in value]
        elif keyword == "anyOf":
            options = [[*_held(item, kind), _failed(item)] for item in value]
        elif keyword == "oneOf":
            options = [[case for item in value for case in _held(item, kind)]]
        elif keyword == "if":
            options = [_conditional(keywords, kind)]
        elif keyword == "dependentSchemas" and kind == "object":
            options = [_dependent(name, item, kind) for name, item in value.items()]
        for option in options:
            cases = _product(cases, option, node)
    return cases


def _own_case(keywords: dict[str, Any], with_unevaluated: bool) -> Case:
    all_names = "additionalProperties" in keywords
    all_items = "items" in keywords
    if with_unevaluated:
        all_names = all_names or "unevaluatedProperties" in keywords
        all_items = all_items or "unevaluatedItems" in keywords
    return Case(
        names=frozenset(keywords.get("properties", ())),
        patterns=tuple(pattern for pattern, _ in keywords.get("patternProperties", ())),
        all_names=all_names,
        num_items=len(keywords.get("prefixItems", ())),
        all_items=all_items,
        contained=(keywords["contains"],) if "contains" in keywords else (),
    )


def _held(node: Node, kind: str) -> list[Case]:
    holds = Case(goal_of(node))
    return [holds.also(case) for case in cases_of(node, kind)]


def _failed(node: Node) -> Case:
    return Case(goal_of(node.negation))


def _conditional(keywords: dict[str, Any], kind: str) -> list[Case]:
    found = _held(keywords["if"], kind)
    if "then" in keywords:
        found = _product(found, _held(keywords["then"], kind), keywords["if"])
    failed = [_failed(keywords["if"])]
    if "else" in keywords:
        failed = _product(failed, _held(keywords["else"], kind), keywords["if"])
    return found + failed


def _dependent(name: str, node: Node, kind: str) -> list[Case]:
    has_name = Node(None, "")
    has_name.keywords = {"required": [name]}
    present = Case(goal_of(has_name))
    return [*(present.also(case) for case in _held(node, kind)), _failed(has_name)]


def _product(left: Iterable[Case], right: list[Case], node: Node) -> list[Case]:
    found = list(dict.fromkeys(one.also(other) for one in left for other in right))
    if len(found) > MAX_CASES:
        raise NotRegular("", node.path, f"it evaluates in more than {MAX_CASES} different ways")
    return found
