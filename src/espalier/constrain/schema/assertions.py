"""What the keywords of one schema assert by themselves, and the opposite, as sets of values.

Knows keywords, but not those that apply other schemas to the same value; these are `expand`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

from espalier.constrain.schema.array_assertions import array_sets, denied_arrays
from espalier.constrain.schema.constants import constant_node, kind_of
from espalier.constrain.schema.formats import format_outer_texts, format_texts
from espalier.constrain.schema.json_text import value_text
from espalier.constrain.schema.node import Goal, Node, goal_of
from espalier.constrain.schema.numbers import ANY_NUMBER, Numbers
from espalier.constrain.schema.object_assertions import denied_objects, object_sets
from espalier.constrain.schema.refusal import NotRegular
from espalier.constrain.schema.strings import ANY_STRING, Strings


class Alternatives(Protocol):
    """The part of an Expander that assertions need."""

    def alternatives(self, goal: Goal, kind: str) -> tuple[Any, ...]:
        """See Expander."""
        ...


@dataclass(frozen=True, slots=True)
class Few:
    """Some of null, false and true."""

    values: frozenset[bool | None]

    @property
    def is_empty(self) -> bool:
        """None of them."""
        return not self.values

    def meet(self, other: Few) -> Few:
        """Values of both."""
        return Few(self.values & other.values)


_NULL = Few(frozenset((None,)))
_BOOLEANS = Few(frozenset((False, True)))


def sets_of(node: Node, kind: str, expander: Alternatives) -> tuple[Any, ...]:
    """Sets whose union a node's own keywords allow of a kind."""
    keywords = node.keywords
    is_whole = False
    types = keywords.get("type")
    if types is not None and kind not in types:
        if kind != "number" or "integer" not in types:
            return ()
        is_whole = True
    found: tuple[Any, ...]
    if kind == "string":
        found = (_strings(keywords),)
    elif kind == "number":
        found = (_numbers(keywords, is_whole),)
    elif kind == "object":
        found = object_sets(node, expander)
    elif kind == "array":
        found = array_sets(keywords)
    else:
        found = (_NULL if kind == "null" else _BOOLEANS,)
    for keyword in ("const", "enum"):
        if keyword in keywords:
            among = _among(keywords[keyword], kind, expander)
            found = tuple(one.meet(other) for one in found for other in among)
    return tuple(item for item in found if not item.is_empty)


def denied_of(node: Node, kind: str, expander: Alternatives) -> tuple[Any, ...]:
    """Sets whose union a node's own keywords forbid of a kind."""
    keywords = node.keywords
    types = keywords.get("type")
    anything = sets_of(_ANYTHING, kind, expander)
    found: list[Any] = []
    if types is not None and kind not in types:
        if kind != "number" or "integer" not in types:
            return anything
        found.append(Numbers(integral=False))
    for keyword in ("const", "enum"):
        if keyword in keywords:
            found += _not_among(keywords[keyword], kind, expander)
    if kind == "number":
        found += _denied_numbers(keywords)
    elif kind == "string":
        found += _denied_strings(node)
    elif kind == "array":
        found += denied_arrays(node)
    elif kind == "object":
        found += denied_objects(node, expander)
    return tuple(found)


_ANYTHING = Node(None, "")


def _among(values: list[Any], kind: str, expander: Alternatives) -> tuple[Any, ...]:
    """Sets of the values that are of a kind."""
    ours = [value for value in values if kind_of(value) == kind]
    if kind == "string":
        return (Strings(values=tuple(dict.fromkeys(ours))),)
    if kind == "number":
        known: dict[Fraction, str] = {}
        for value in ours:
            known.setdefault(Fraction(value), value_text(value))
        return (Numbers(values=tuple(known.items())),)
    if kind in ("array", "object"):
        return tuple(
            item
            for value in ours
            for item in expander.alternatives(goal_of(constant_node(value)), kind)
        )
    return (Few(frozenset(ours)),)


def _not_among(values: list[Any], kind: str, expander: Alternatives) -> tuple[Any, ...]:
    """Sets of whatever is of a kind and none of the values."""
    ours = [value for value in values if kind_of(value) == kind]
    if kind == "string":
        return (Strings(excluded=frozenset(ours)),)
    if kind == "number":
        return (Numbers(excluded=frozenset(map(Fraction, ours))),)
    if kind in ("array", "object"):
        goal = goal_of(*(constant_node(value).negation for value in ours))
        return expander.alternatives(goal, kind) if goal else sets_of(_ANYTHING, kind, expander)
    whole = _NULL if kind == "null" else _BOOLEANS
    return (Few(whole.values - frozenset(ours)),)


_NUMERIC = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")


def _numbers(keywords: dict[str, Any], is_whole: bool) -> Numbers:
    found = Numbers(integral=True) if is_whole else ANY_NUMBER
    for keyword in _NUMERIC:
        value = keywords.get(keyword)
        if value is not None:
            found = found.meet(_numeric(keyword, value))
    return found


def _numeric(keyword: str, value: Fraction) -> Numbers:
    if keyword in ("minimum", "exclusiveMinimum"):
        return Numbers(low=value, low_open=keyword != "minimum")
    if keyword == "multipleOf":
        return Numbers(multiples=(value,))
    return Numbers(high=value, high_open=keyword != "maximum")


def _denied_numbers(keywords: dict[str, Any]) -> list[Numbers]:
    found = []
    for keyword in _NUMERIC:
        value = keywords.get(keyword)
        if value is None:
            continue
        if keyword in ("minimum", "exclusiveMinimum"):
            found.append(Numbers(high=value, high_open=keyword == "minimum"))
        elif keyword == "multipleOf":
            found.append(Numbers(non_multiples=(value,)))
        else:
            found.append(Numbers(low=value, low_open=keyword == "maximum"))
    return found


def _strings(keywords: dict[str, Any]) -> Strings:
    found = ANY_STRING
    if "minLength" in keywords or "maxLength" in keywords:
        found = Strings(keywords.get("minLength", 0), keywords.get("maxLength"))
    if "pattern" in keywords:
        found = found.meet(Strings(patterns=(keywords["pattern"],)))
    if "format" in keywords:
        found = found.meet(Strings(patterns=(format_texts(keywords["format"]),)))
    return found


def _denied_strings(node: Node) -> list[Strings]:
    keywords = node.keywords
    found = []
    if keywords.get("minLength", 0) > 0:
        found.append(Strings(max_length=keywords["minLength"] - 1))
    if "maxLength" in keywords:
        found.append(Strings(min_length=keywords["maxLength"] + 1))
    if "pattern" in keywords:
        found.append(Strings(non_patterns=(keywords["pattern"],)))
    if "format" in keywords:
        outer = format_outer_texts(keywords["format"])
        if outer is None:
            name = keywords["format"]
            raise NotRegular("format", node.path, f"{name!r} cannot be negated")
        found.append(Strings(non_patterns=(outer,)))
    return found
