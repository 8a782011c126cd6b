"""Arrays as JSON text."""

from __future__ import annotations

from typing import Protocol

from espalier.constrain.pattern import EMPTY, NOTHING, Alternation, Literal, Pattern
from espalier.constrain.schema.arrays import Arrays, Some
from espalier.constrain.schema.construct import both, concat, either, optional, repeat, without
from espalier.constrain.schema.expand import Expander
from espalier.constrain.schema.layout import Layout
from espalier.constrain.schema.node import Goal, Negation, Node, goal_of, joined
from espalier.constrain.schema.refusal import NotRegular

MAX_PREFIX = 200
MAX_COUNTED_PREFIX = 6  # goals of first elements beside `contains`
MAX_CONTAINED = 64
MAX_UNIQUE_VALUES = 8


class Values(Protocol):
    """The part of a Builder that containers need."""

    layout: Layout
    expander: Expander

    def pattern(self, goal: Goal, depth: int) -> Pattern:
        """See Builder."""
        ...


class ArrayText:
    """Builds patterns of sets of arrays."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def pattern(self, arrays: Arrays, depth: int) -> Pattern:
        """JSON texts of the arrays. Raises NotRegular, with no place, for what it cannot count."""
        arrays = _with_lengths(arrays)
        if arrays.is_empty:
            return NOTHING
        if len(arrays.prefix) > MAX_PREFIX:
            raise NotRegular("prefixItems", "", f"it has more than {MAX_PREFIX} schemas")
        separator = Literal(self._values.layout.separator(depth))
        found = self._elements(arrays, depth, separator)
        for some in arrays.some:
            found = both(found, _Counted(self._values, arrays, some, depth, separator).elements())
        if arrays.unique:
            found = self._without_repetition(found, arrays, depth, separator)
        return self._bracketed(found, arrays.low == 0 and self._may_be_empty(arrays), depth)

    def _may_be_empty(self, arrays: Arrays) -> bool:
        return all(some.low <= 0 for some in arrays.some)

    def _bracketed(self, elements: Pattern, may_be_empty: bool, depth: int) -> Pattern:
        layout = self._values.layout
        full = concat(
            (Literal("[" + layout.opening(depth)), elements, Literal(layout.closing(depth) + "]"))
        )
        return either((Literal("[]"), full)) if may_be_empty else full

    def _elements(self, arrays: Arrays, depth: int, separator: Pattern) -> Pattern:
        """One element or more, with separators, within the bounds of the length."""
        most = arrays.most
        if most == 0:
            return NOTHING
        count = len(arrays.prefix) if most is None else min(len(arrays.prefix), most)
        if most is None or most > count:
            rest = concat((separator, self._values.pattern(arrays.rest, depth + 1)))
            start = max(count, 1)
            later = repeat(rest, max(arrays.low - start, 0), None if most is None else most - start)
        else:
            later = EMPTY
        for index in range(count - 1, 0, -1):
            element = self._values.pattern(arrays.prefix[index], depth + 1)
            later = concat((separator, element, later))
            if index >= arrays.low:
                later = optional(later)
        return concat((self._values.pattern(arrays.goal_at(0), depth + 1), later))

    def _without_repetition(
        self, elements: Pattern, arrays: Arrays, depth: int, separator: Pattern
    ) -> Pattern:
        if arrays.most is not None and arrays.most <= 1:
            return elements
        goals = {arrays.goal_at(index) for index in range(len(arrays.prefix) + 1)}
        texts: set[str] = set()
        for goal in goals:
            texts.update(_few_texts(self._values.pattern(goal, depth + 1)))
        if len(texts) > MAX_UNIQUE_VALUES:
            raise NotRegular(
                "uniqueItems", "", f"it has more than {MAX_UNIQUE_VALUES} values to choose from"
            )
        one = either(map(Literal, sorted(texts)))
        before = repeat(concat((one, separator)), 0, None)
        after = repeat(concat((separator, one)), 0, None)
        twice = [
            concat((before, Literal(text), after, separator, Literal(text), after))
            for text in sorted(texts)
        ]
        return without(elements, either(twice))


def _few_texts(pattern: Pattern) -> list[str]:
    """The texts of a pattern that lists them. Two texts of such a schema are different values."""
    options = pattern.options if isinstance(pattern, Alternation) else (pattern,)
    texts = [option.text for option in options if isinstance(option, Literal)]
    if len(texts) < len(options):
        raise NotRegular("uniqueItems", "", "its items are not a short list of values")
    return texts


def _with_lengths(arrays: Arrays) -> Arrays:
    """Counts of elements that any value satisfies are bounds of the length."""
    kept = []
    for some in arrays.some:
        if some.goal:
            kept.append(some)
            continue
        low = some.start + some.low if some.low > 0 else 0
        high = None if some.high is None else some.start + some.high
        arrays = arrays.meet(Arrays(low=low, high=high))
    if len(kept) == len(arrays.some):
        return arrays
    return Arrays(arrays.prefix, arrays.rest, arrays.low, arrays.high, tuple(kept), arrays.unique)


class _Counted:
    """Arrays of a set, of any length, in which a number of elements satisfies a further goal."""

    def __init__(
        self, values: Values, arrays: Arrays, some: Some, depth: int, separator: Pattern
    ) -> None:
        self._values = values
        self._arrays = arrays
        self._some = some
        self._depth = depth
        self._separator = separator
        self._opposite: tuple[Node | Negation, ...] | None = None
        if some.high is not None:
            # A goal of several parts has no single opposite; none of `contains` has several.
            if len(some.goal) != 1:
                raise NotRegular("maxContains", "", "it counts a combination of schemas")
            part = some.goal[0]
            self._opposite = goal_of(part.negation if isinstance(part, Node) else part.node)
        if max(some.low, some.high or 0) > MAX_CONTAINED:
            raise NotRegular("minContains", "", f"it counts to more than {MAX_CONTAINED}")
        self._start = max(len(arrays.prefix), some.start)
        if self._start > MAX_COUNTED_PREFIX:
            raise NotRegular("contains", "", "too many elements before it have their own schema")

    def elements(self) -> Pattern:
        """One element or more, with separators."""
        return self._from(0, self._some.low, self._some.high)

    def _one(self, goal: Goal) -> Pattern:
        return self._values.pattern(goal, self._depth + 1)

    def _from(self, index: int, low: int, high: int | None) -> Pattern:
        """Elements from an index on; what precedes them is there."""
        if index >= self._start:
            return self._rest(index, low, high)
        base = self._arrays.goal_at(index)
        lead = self._separator if index else EMPTY
        options: list[Pattern] = [EMPTY] if index and low <= 0 else []
        if index < self._some.start:
            options.append(concat((lead, self._one(base), self._from(index + 1, low, high))))
            return either(options)
        other = base if self._opposite is None else joined(base, self._opposite)
        options.append(concat((lead, self._one(other), self._from(index + 1, low, high))))
        if high is None or high > 0:
            found = self._one(joined(base, self._some.goal))
            fewer = None if high is None else high - 1
            options.append(concat((lead, found, self._from(index + 1, max(low - 1, 0), fewer))))
        return either(options)

    def _rest(self, index: int, low: int, high: int | None) -> Pattern:
        base = self._arrays.rest
        other = self._one(base if self._opposite is None else joined(base, self._opposite))
        found = self._one(joined(base, self._some.goal))
        others = repeat(concat((self._separator, other)), 0, None)
        group = concat((self._separator, found, others))
        most = low if high is None else high
        if index:
            return concat((others, repeat(group, low, most)))
        options = [concat((other, others, repeat(group, low, most)))]
        if most > 0:
            options.append(concat((found, others, repeat(group, max(low - 1, 0), most - 1))))
        elif high is None:
            options.append(concat((found, others)))
        return either(options)
