"""Objects as JSON text.

Properties come in the order of the schema, those with other names after them. No name that the
schema mentions can come twice. Two further properties of an open object can have the same name,
which no pattern excludes; the last one then counts, so what is asked of them holds for any of them,
and they count as one property where a number of properties must be reached.
"""

from __future__ import annotations

from dataclasses import dataclass

from espalier.constrain.pattern import ANY_TEXT, EMPTY, NOTHING, Alternation, Literal, Pattern
from espalier.constrain.schema.array_text import Values
from espalier.constrain.schema.construct import both, concat, either, without
from espalier.constrain.schema.json_text import quoted, string_text
from espalier.constrain.schema.node import NEVER, Goal, joined
from espalier.constrain.schema.objects import Names, Objects
from espalier.constrain.schema.refusal import NotRegular
from espalier.constrain.schema.sequence import Slot, counted, non_empty
from espalier.constrain.schema.texts import Texts

MAX_NAME_PATTERNS = 6


@dataclass(frozen=True, slots=True)
class _Cell:
    """Names outside the mentioned ones that all patterns of a schema treat alike."""

    names: Pattern
    goal: Goal


class ObjectText:
    """Builds patterns of sets of objects."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def pattern(self, objects: Objects, depth: int) -> Pattern:
        """JSON texts of the objects. Raises NotRegular, with no place, for what it cannot count."""
        if objects.some:
            return self._with_some(objects, depth)
        slots = self._named_slots(objects, depth)
        if slots is None:
            return NOTHING
        cells = self._cells(objects)
        further = either(self._member(cell, depth) for cell in cells)
        return self._braced(objects, slots, further, depth)

    def _named_slots(self, objects: Objects, depth: int) -> list[Slot] | None:
        """The properties that are mentioned and possible; None where a required one is not."""
        layout = self._values.layout
        separator = layout.separator(depth)
        required = objects.required
        names = dict(objects.named)
        if not required <= names.keys():
            names.update(dict.fromkeys(sorted(required - names.keys()), ()))
        slots = []
        for name, own in names.items():
            goal = own
            for among, part in objects.every:
                if among.has(name):
                    goal = joined(goal, part)
            value = self._values.pattern(goal, depth + 1)
            if value != NOTHING:
                text = string_text(name) + layout.colon
                slots.append(Slot(text, value, separator, is_required=name in required))
            elif name in required:
                return None
        return slots

    def _member(self, cell: _Cell, depth: int) -> Pattern:
        value = self._values.pattern(cell.goal, depth + 1)
        return concat((quoted(cell.names), Literal(self._values.layout.colon), value))

    def _cells(self, objects: Objects) -> list[_Cell]:
        """The names that may follow the mentioned ones, by what their values must satisfy."""
        mentioned = {name for name, _ in objects.named} | objects.required
        patterns: dict[Texts, None] = {}
        for names, _ in objects.every:
            patterns.update(dict.fromkeys(names.but_patterns))
            if names.pattern is not None:
                patterns[names.pattern] = None
            mentioned |= names.but_names
        if len(patterns) > MAX_NAME_PATTERNS:
            raise NotRegular(
                "patternProperties", "", f"more than {MAX_NAME_PATTERNS} patterns of names meet"
            )
        cells = self._split(objects, tuple(patterns))
        if not mentioned:
            return cells
        taken = Alternation(tuple(map(Literal, sorted(mentioned))))
        return [_Cell(without(cell.names, taken), cell.goal) for cell in cells]

    def _split(self, objects: Objects, patterns: tuple[Texts, ...]) -> list[_Cell]:
        cells = []
        for bits in range(1 << len(patterns)):
            inside = {pattern for i, pattern in enumerate(patterns) if bits >> i & 1}
            goal: Goal = ()
            for names, part in objects.every:
                if _covers(names, inside):
                    goal = joined(goal, part)
            if goal == NEVER:
                continue
            texts: Pattern | None = None
            for pattern in patterns:
                if pattern in inside:
                    texts = pattern.pattern if texts is None else both(texts, pattern.pattern)
            texts = ANY_TEXT if texts is None else texts
            for pattern in patterns:
                if pattern not in inside:
                    texts = without(texts, pattern.pattern)
            cells.append(_Cell(texts, goal))
        return cells

    def _braced(self, objects: Objects, slots: list[Slot], further: Pattern, depth: int) -> Pattern:
        layout = self._values.layout
        has_further = further != NOTHING
        if has_further:
            tail = [Slot("", further, layout.separator(depth), is_required=False).repeated()]
        else:
            tail = []
        num_required = sum(slot.is_required for slot in slots)
        low, high = objects.low, objects.high
        reachable = len(slots) + has_further
        if not has_further and low > reachable:
            return NOTHING
        if has_further and low > num_required + 1:
            raise NotRegular(
                "minProperties", "", "names that the schema does not mention could repeat"
            )
        is_counted = low > max(num_required, 1) or (
            high is not None and (has_further or high < len(slots))
        )
        if is_counted:
            members = counted(slots + tail, max(low, 1), high)
        else:
            members = non_empty(slots + tail)
        full = concat(
            (Literal("{" + layout.opening(depth)), members, Literal(layout.closing(depth) + "}"))
        )
        if num_required or low > 0:
            return full
        return either((Literal("{}"), full))

    def _with_some(self, objects: Objects, depth: int) -> Pattern:
        """Objects with a property that satisfies something: a mentioned one, or the last one."""
        if len(objects.some) > 1:
            raise NotRegular("not", "", "several conditions on properties of any name are denied")
        names, goal = objects.some[0]
        plain = Objects(
            objects.named, objects.every, objects.required, (), objects.low, objects.high,
        )  # fmt: skip
        options = []
        mentioned = {name for name, _ in objects.named} | objects.required | names.but_names
        for name in sorted(mentioned):
            if names.has(name):
                there = Objects(named=((name, goal),), required=frozenset((name,)))
                options.append(self.pattern(plain.meet(there), depth))
        options.append(self._with_last(plain, names, goal, depth))
        return either(options)

    def _with_last(self, objects: Objects, names: Names, goal: Goal, depth: int) -> Pattern:
        """Objects whose last property has a further name among some and satisfies a goal."""
        if objects.high is not None or objects.low > len(objects.required) + 1:
            raise NotRegular("not", "", "it counts properties beside a condition on any of them")
        layout = self._values.layout
        separator = layout.separator(depth)
        slots = self._named_slots(objects, depth)
        if slots is None:
            return NOTHING
        mentioned = frozenset(name for name, _ in objects.named) | names.but_names
        further = either(self._member(cell, depth) for cell in self._cells(objects))
        extra = objects.meet(Objects(every=((names, goal),)))
        last = [
            self._member(cell, depth)
            for cell in self._cells_among(extra, names, mentioned)
        ]  # fmt: skip
        if further != NOTHING:
            slots.append(Slot("", further, separator, is_required=False).repeated())
        lead = non_empty(slots)
        if any(slot.is_required for slot in slots):
            before = concat((lead, Literal(separator)))
        else:
            before = either((EMPTY, concat((lead, Literal(separator)))))
        return concat(
            (
                Literal("{" + layout.opening(depth)),
                before,
                either(last),
                Literal(layout.closing(depth) + "}"),
            )
        )

    def _cells_among(
        self, objects: Objects, names: Names, mentioned: frozenset[str]
    ) -> list[_Cell]:
        """Cells of names that are among some."""
        cells = []
        for cell in self._cells(objects):
            texts = cell.names
            if names.pattern is not None:
                texts = both(texts, names.pattern.pattern)
            for pattern in names.but_patterns:
                texts = without(texts, pattern.pattern)
            if mentioned:
                texts = without(texts, Alternation(tuple(map(Literal, sorted(mentioned)))))
            cells.append(_Cell(texts, cell.goal))
        return cells


def _covers(names: Names, inside: set[Texts]) -> bool:
    """Names outside the mentioned ones, in these patterns and in no others, are among `names`."""
    if names.pattern is not None:
        return names.pattern in inside
    return not inside.intersection(names.but_patterns)
