"""What a goal means for one kind of value: a union of sets, each a plain conjunction.

The algebra is closed under negation (Attouche et al., Witness Generation for JSON Schema, 2022), so
`not`, `oneOf` and `if` become sets like all others. Everything here speaks of values; no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Union

from espalier.constrain.schema.arrays import Arrays, Some
from espalier.constrain.schema.assertions import Few, denied_of, sets_of
from espalier.constrain.schema.evaluated import Case, cases_of
from espalier.constrain.schema.node import NEVER, Goal, Negation, Node, goal_of, joined
from espalier.constrain.schema.numbers import Numbers
from espalier.constrain.schema.objects import NO_OBJECT, Objects
from espalier.constrain.schema.refusal import NotRegular
from espalier.constrain.schema.strings import Strings

ValueSet = Union[Few, Numbers, Strings, Arrays, Objects]  # noqa: UP007
Union_ = tuple[ValueSet, ...]

MAX_ALTERNATIVES = 256
MAX_EMPTINESS_DEPTH = 4

_APPLICATORS = frozenset(
    [
        "$ref",
        "$dynamicRef",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "unevaluatedProperties",
        "unevaluatedItems",
    ]
)
_ANYTHING = Node(None, "")


class Expander:
    """Expands the goals of one schema; remembers what it found."""

    def __init__(self) -> None:
        self._known: dict[tuple[Node | Negation, str], Union_] = {}
        self._testing: set[Goal] = set()

    def alternatives(self, goal: Goal, kind: str) -> Union_:
        """Sets whose union is what a goal allows of a kind. Raises NotRegular beyond the limit."""
        if goal == NEVER:
            return ()
        if len(goal) == 1:
            return self._part(goal[0], kind)
        found = self._part(_ANYTHING, kind)
        for part in goal:
            found = self._meet(found, self._part(part, kind), kind, part)
        return found

    def is_impossible(self, goal: Goal) -> bool:
        """Plainly no value satisfies a goal."""
        if goal == NEVER:
            return True
        if goal in self._testing or len(self._testing) >= MAX_EMPTINESS_DEPTH:
            return False
        self._testing.add(goal)
        try:
            kinds = ("null", "boolean", "number", "string", "array", "object")
            return not any(
                not self.is_empty(found)
                for kind in kinds
                for found in self.alternatives(goal, kind)
            )
        finally:
            self._testing.discard(goal)

    def is_empty(self, found: ValueSet) -> bool:
        """Plainly no value is in a set."""
        if found.is_empty:
            return True
        if isinstance(found, Objects):
            return any(self.is_impossible(found.goal_of(name)) for name in found.required)
        if isinstance(found, Arrays):
            count = min(found.low, len(found.prefix) + 1)
            return any(self.is_impossible(found.goal_at(index)) for index in range(count))
        return False

    def _part(self, part: Node | Negation, kind: str) -> Union_:
        key = part, kind
        found = self._known.get(key)
        if found is None:
            if isinstance(part, Node):
                found = self._allowed(part, kind)
            else:
                found = self._denied(part.node, kind)
            self._known[key] = found
        return found

    def _meet(self, left: Union_, right: Union_, kind: str, part: Node | Negation) -> Union_:
        if len(left) * len(right) > MAX_ALTERNATIVES * 16:
            raise self._too_many(part)
        met: dict[ValueSet, None] = {}
        for one in left:
            for other in right:
                found: Any = one.meet(other)  # type: ignore[arg-type]
                if found not in met and not self.is_empty(found):
                    met[found] = None
        if len(met) > MAX_ALTERNATIVES:
            raise self._too_many(part)
        return tuple(met)

    def _too_many(self, part: Node | Negation) -> NotRegular:
        node = part if isinstance(part, Node) else part.node
        return NotRegular(
            "", node.path, f"it has more than {MAX_ALTERNATIVES} combinations of alternatives"
        )

    def _union(self, goals: Iterable[Goal], kind: str, node: Node) -> Union_:
        found: dict[ValueSet, None] = {}
        for goal in goals:
            found.update(dict.fromkeys(self.alternatives(goal, kind)))
        if len(found) > MAX_ALTERNATIVES:
            raise self._too_many(node)
        return tuple(found)

    def _allowed(self, node: Node, kind: str) -> Union_:
        if node.never:
            return ()
        keywords = node.keywords
        if _APPLICATORS.isdisjoint(keywords):
            return tuple(sets_of(node, kind, self))
        found = sets_of(_ANYTHING, kind, self)
        has_own = False
        for keyword in keywords:
            if keyword in _APPLICATORS:
                found = self._meet(found, self._applied(node, keyword, kind), kind, node)
            elif not has_own:
                has_own = True
                found = self._meet(found, sets_of(node, kind, self), kind, node)
        return found

    def _applied(self, node: Node, keyword: str, kind: str) -> Union_:
        """What one applicator allows."""
        value = node.keywords[keyword]
        if keyword in ("$ref", "$dynamicRef"):
            return self.alternatives(goal_of(value), kind)
        if keyword == "allOf":
            return self.alternatives(goal_of(*value), kind)
        if keyword == "anyOf":
            return self._union((goal_of(item) for item in value), kind, node)
        if keyword == "oneOf":
            return self._union(self._exactly_one(value, kind), kind, node)
        if keyword == "not":
            return self.alternatives(goal_of(value.negation), kind)
        if keyword == "if":
            return self._union(_branches(node.keywords), kind, node)
        if keyword == "dependentSchemas" and kind == "object":
            found: Union_ = (Objects(),)
            for name, child in value.items():
                absent: Union_ = (Objects(named=((name, NEVER),)),)
                present = self._meet(
                    (Objects(required=frozenset((name,))),),
                    self.alternatives(goal_of(child), kind),
                    kind,
                    node,
                )
                found = self._meet(found, absent + present, kind, node)
            return found
        if keyword == "unevaluatedProperties" and kind == "object":
            return self._unevaluated(node, kind, self._names_left)
        if keyword == "unevaluatedItems" and kind == "array":
            return self._unevaluated(node, kind, self._items_left)
        return self._part(_ANYTHING, kind)

    def _unevaluated(self, node: Node, kind: str, left: Callable[[Case, Node], ValueSet]) -> Union_:
        """`unevaluated...` of a node: in each case, what it asks of whatever is left."""
        found: dict[ValueSet, None] = {}
        for case in cases_of(node, kind, with_unevaluated=False):
            holds = self.alternatives(case.condition, kind)
            found.update(dict.fromkeys(self._meet(holds, (left(case, node),), kind, node)))
        return tuple(found)

    def _names_left(self, case: Case, node: Node) -> ValueSet:
        goal = goal_of(node.keywords["unevaluatedProperties"])
        return Objects() if case.all_names or not goal else Objects(every=((case.rest, goal),))

    def _names_denied(self, case: Case, node: Node) -> ValueSet:
        denied = goal_of(node.keywords["unevaluatedProperties"].negation)
        return NO_OBJECT if case.all_names else Objects(some=((case.rest, denied),))

    def _items_left(self, case: Case, node: Node) -> ValueSet:
        if case.all_items:
            return Arrays()
        allowed = node.keywords["unevaluatedItems"]
        if case.contained:
            allowed = Node(node, "unevaluatedItems")
            allowed.keywords = {"anyOf": [node.keywords["unevaluatedItems"], *case.contained]}
        return Arrays(prefix=((),) * case.num_items, rest=goal_of(allowed))

    def _items_denied(self, case: Case, node: Node) -> ValueSet:
        if case.all_items:
            return Arrays(high=-1)
        parts = (node.keywords["unevaluatedItems"], *case.contained)
        denied = goal_of(*(part.negation for part in parts))
        return Arrays(some=(Some(denied, start=case.num_items),))

    def _exactly_one(self, nodes: list[Node], kind: str) -> list[Goal]:
        goals = []
        for node in nodes:
            others = [
                other.negation
                for other in nodes
                if other is not node and not self._are_disjoint(node, other, kind)
            ]
            goals.append(goal_of(node, *others))
        return goals

    def _are_disjoint(self, one: Node, other: Node, kind: str) -> bool:
        return all(map(self.is_empty, self.alternatives(goal_of(one, other), kind)))

    def _denied(self, node: Node, kind: str) -> Union_:
        if node.never:
            return self._part(_ANYTHING, kind)
        found = list(denied_of(node, kind, self))
        for keyword, value in node.keywords.items():
            if keyword in ("$ref", "$dynamicRef"):
                found += self.alternatives(goal_of(value.negation), kind)
            elif keyword == "allOf":
                for item in value:
                    found += self.alternatives(goal_of(item.negation), kind)
            elif keyword == "anyOf":
                found += self.alternatives(goal_of(*(item.negation for item in value)), kind)
            elif keyword == "oneOf":
                found += self._union(_not_exactly_one(value), kind, node)
            elif keyword == "not":
                found += self.alternatives(goal_of(value), kind)
            elif keyword == "if":
                found += self._union(_denied_branches(node.keywords), kind, node)
            elif keyword == "dependentSchemas" and kind == "object":
                for name, child in value.items():
                    present: Union_ = (Objects(required=frozenset((name,))),)
                    denied = self.alternatives(goal_of(child.negation), kind)
                    found += self._meet(present, denied, kind, node)
            elif keyword == "unevaluatedProperties" and kind == "object":
                found += self._unevaluated(node, kind, self._names_denied)
            elif keyword == "unevaluatedItems" and kind == "array":
                found += self._unevaluated(node, kind, self._items_denied)
        return tuple(dict.fromkeys(found))


def _branches(keywords: dict[str, Any]) -> list[Goal]:
    """`if` with its branches: which goals make it hold."""
    condition = keywords["if"]
    then = goal_of(keywords["then"]) if "then" in keywords else ()
    other = goal_of(keywords["else"]) if "else" in keywords else ()
    if not then and not other:
        return [()]
    return [joined(goal_of(condition), then), joined(goal_of(condition.negation), other)]


def _denied_branches(keywords: dict[str, Any]) -> list[Goal]:
    condition = keywords["if"]
    goals = []
    if "then" in keywords:
        goals.append(goal_of(condition, keywords["then"].negation))
    if "else" in keywords:
        goals.append(goal_of(condition.negation, keywords["else"].negation))
    return goals


def _not_exactly_one(nodes: list[Node]) -> list[Goal]:
    goals = [goal_of(*(node.negation for node in nodes))]
    goals += [
        goal_of(one, other) for index, one in enumerate(nodes) for other in nodes[index + 1 :]
    ]
    return goals
