"""Patterns of checked schemas: goals to JSON text.

Owns recursion: what would nest without end is not regular, unless a bound is given.
"""

from __future__ import annotations

from contextlib import suppress

from espalier.constrain.pattern import NOTHING, CharClass, Literal, Pattern
from espalier.constrain.schema.array_text import ArrayText
from espalier.constrain.schema.arrays import Arrays
from espalier.constrain.schema.assertions import Few
from espalier.constrain.schema.constants import kind_of
from espalier.constrain.schema.construct import either
from espalier.constrain.schema.expand import Expander, ValueSet
from espalier.constrain.schema.json_text import free_string
from espalier.constrain.schema.layout import Layout
from espalier.constrain.schema.node import KINDS, NEVER, Goal, Node
from espalier.constrain.schema.number_text import number_pattern
from espalier.constrain.schema.numbers import Numbers
from espalier.constrain.schema.object_text import ObjectText
from espalier.constrain.schema.recursion import recursive_goals
from espalier.constrain.schema.references import in_place
from espalier.constrain.schema.refusal import NotRegular
from espalier.constrain.schema.strings import Strings
from espalier.errors import UserInputError

MAX_NESTING = 50  # arrays and objects inside each other that a pattern describes
MAX_PATTERNS = 20_000  # patterns of goals that one schema may need

MAX_LEAVES = 2_000

# Patterns of schemas of scalars, by their keywords: most schemas are made of few different ones.
_LEAVES: dict[object, Pattern] = {}
_LEAF_KEYWORDS = frozenset(
    (
        "type",
        "format",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
    )
)
_CONTAINERS = frozenset(("array", "object"))

_TEXTS = {None: Literal("null"), False: Literal("false"), True: Literal("true")}


class Builder:
    """Builds the patterns of one schema.

    `max_recursion`: how many goals that stand inside themselves may stand inside each other; None:
    such a goal raises NotRegular.
    """

    def __init__(self, layout: Layout, max_recursion: int | None) -> None:
        self.layout = layout
        self.expander = Expander()
        self._arrays = ArrayText(self)
        self._objects = ObjectText(self)
        self._max_recursion = max_recursion
        self._recursive: frozenset[Goal] = frozenset()
        self._level = 0  # goals around that stand inside themselves
        self._open: set[Goal] = set()
        self._known: dict[object, Pattern] = {}
        self._num_built = 0

    def build(self, goal: Goal) -> Pattern:
        """JSON texts of the values that satisfy a goal."""
        if self._max_recursion is not None:
            tracer = _Tracer(self.layout, self.expander)
            self._recursive = recursive_goals(goal, tracer.parts_of)
        return self.pattern(goal, 0)

    def has_endless_goals(self) -> bool:
        """Some part of the schema that was built allows only values that never end."""
        return any(self.pattern(goal, 0) == NOTHING for goal in self._recursive)

    def pattern(self, goal: Goal, depth: int) -> Pattern:
        """JSON texts, inside `depth` arrays and objects, of the values that satisfy a goal."""
        if goal == NEVER:
            return NOTHING
        leaf = _leaf_key(goal[0]) if len(goal) == 1 and isinstance(goal[0], Node) else None
        if leaf is not None:
            found = _LEAVES.get(leaf)
            if found is None:
                if len(_LEAVES) >= MAX_LEAVES:
                    _LEAVES.clear()
                found = _LEAVES[leaf] = self._texts(goal, depth)
            return found
        is_recursive = goal in self._recursive
        if is_recursive and self._level == self._max_recursion:
            return NOTHING
        key = (goal, depth if self.layout.is_pretty else 0, self._level)
        known = self._known.get(key)
        if known is None:
            self._level += is_recursive
            known = self._known[key] = self._build(goal, depth)
            self._level -= is_recursive
        return known

    def _build(self, goal: Goal, depth: int) -> Pattern:
        self._num_built += 1
        if self._num_built > MAX_PATTERNS:
            raise NotRegular("", path_of(goal), f"it needs more than {MAX_PATTERNS} patterns")
        if depth > MAX_NESTING:
            raise UserInputError(
                f"JSON schema: its values nest more than {MAX_NESTING} arrays and objects; "
                "fewer are allowed."
            )
        if self._max_recursion is not None:
            return self._texts(goal, depth)
        if goal in self._open:
            what = "it contains itself" if goal else "a part of it allows any JSON value"
            raise NotRegular("", path_of(goal), what)
        self._open.add(goal)
        found = self._texts(goal, depth)
        self._open.discard(goal)
        return found

    def _texts(self, goal: Goal, depth: int) -> Pattern:
        return either(
            self._text_of(found, depth, goal)
            for kind in kinds_of(goal)
            for found in self.expander.alternatives(goal, kind)
        )

    def _text_of(self, found: ValueSet, depth: int, goal: Goal) -> Pattern:
        if found.is_empty:
            return NOTHING
        try:
            if isinstance(found, Few):
                return either(_TEXTS[value] for value in found.values)
            if isinstance(found, Numbers):
                return number_pattern(found)
            if isinstance(found, Strings):
                if found.is_free:
                    return free_string(found.min_length, found.max_length)
                return found.quoted
            if isinstance(found, Arrays):
                return self._arrays.pattern(found, depth)
            return self._objects.pattern(found, depth)
        except NotRegular as error:
            if error.path:
                raise
            raise NotRegular(error.keyword, path_of(goal, error.keyword), error.reason) from None


class _Tracer(Builder):
    """Finds the goals of the values inside those of a goal."""

    def __init__(self, layout: Layout, expander: Expander) -> None:
        super().__init__(layout, None)
        self.expander = expander
        self._parts: dict[Goal, None] = {}

    def parts_of(self, goal: Goal) -> tuple[Goal, ...]:
        """Goals of elements and properties of the values that satisfy a goal."""
        self._parts = {}
        for kind in kinds_of(goal):
            for found in self.expander.alternatives(goal, kind):
                # Where stubs are not enough, or no pattern is, building says so.
                with suppress(NotRegular):
                    self._text_of(found, 0, goal)
        return tuple(self._parts)

    def has_endless_goals(self) -> bool:
        """Some part of the schema that was built allows only values that never end."""
        return any(self.pattern(goal, 0) == NOTHING for goal in self._recursive)

    def pattern(self, goal: Goal, depth: int) -> Pattern:
        """Notes the goal; any pattern that has texts does."""
        if goal != NEVER:
            self._parts[goal] = None
        return NOTHING if goal == NEVER else _STUB


_STUB = CharClass(((0x78, 0x78),))


def kinds_of(goal: Goal) -> tuple[str, ...]:
    """Kinds that a goal may allow, by the types that its first schema names."""
    first = goal[0] if goal else None
    keywords = first.keywords if isinstance(first, Node) else {}
    types = keywords.get("type")
    if types is None:
        among = keywords.get("const", keywords.get("enum"))
        if among is None:
            return KINDS
        types = set(map(kind_of, among))
    return tuple(
        kind for kind in KINDS if kind in types or (kind == "number" and "integer" in types)
    )


def path_of(goal: Goal, keyword: str = "") -> str:
    """Where a goal comes from, for messages; where a keyword of it stands, if one is given."""
    nodes = [part if isinstance(part, Node) else part.node for part in goal]
    seen = set(nodes)
    for node in nodes:
        if keyword in node.keywords:
            return node.path
        for _, child in in_place(node):
            if child not in seen:
                seen.add(child)
                nodes.append(child)
    return next((node.path for node in nodes if node.parent is not None), "")


def _leaf_key(node: Node) -> object | None:
    """What decides the pattern of a schema of scalars; None for any other schema."""
    keywords = node.keywords
    types = keywords.get("type", _CONTAINERS if "enum" not in keywords else ())
    if not _CONTAINERS.isdisjoint(types):
        return None
    parts = []
    for keyword, value in keywords.items():
        if keyword in _LEAF_KEYWORDS:
            parts.append((keyword, value))
        elif keyword in ("enum", "const") and all(type(item) is str for item in value):
            parts.append((keyword, tuple(value)))
        else:
            return None
    return tuple(parts)
