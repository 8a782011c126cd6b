"""Expressions with anchors and look-ahead, as patterns of the whole texts they are found in.

Knows no syntax. An expression without assertions is a Pattern already; one with them is a tree of
Rows, Branches and Times, which `found_in` resolves from the left: what is known at a place is
whether anything precedes it in the text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Union

from espalier.constrain.pattern import ANY_TEXT, EMPTY, NOTHING, Pattern
from espalier.constrain.schema.construct import (
    both,
    concat,
    either,
    has_empty_text,
    repeat,
    without,
)
from espalier.errors import UserInputError

MAX_STEPS = 2_000


class Anchor(Enum):
    """An end of the text."""

    START = "^"
    END = "$"


@dataclass(frozen=True, slots=True)
class Ahead:
    """What follows begins with `inner`, or does not."""

    inner: Item
    negative: bool


@dataclass(frozen=True, slots=True)
class Row:
    """Items in a row, of which some assert."""

    items: tuple[Item, ...]

    @staticmethod
    def of(items: list[Item]) -> Item:
        """The items in a row, as a Pattern where none of them asserts."""
        flat = [
            part for item in items for part in (item.items if isinstance(item, Row) else (item,))
        ]
        if any(isinstance(item, _ASSERTING) for item in flat):
            return Row(tuple(flat))
        return concat(item for item in flat if not isinstance(item, _ASSERTING))


@dataclass(frozen=True, slots=True)
class Branch:
    """Any of some items, of which some assert."""

    options: tuple[Item, ...]

    @staticmethod
    def of(options: list[Item]) -> Item:
        """Any of the options, as a Pattern where none of them asserts."""
        if len(options) == 1:
            return options[0]
        if any(isinstance(option, _ASSERTING) for option in options):
            return Branch(tuple(options))
        return either(option for option in options if not isinstance(option, _ASSERTING))


class Times:
    """Repetitions: of what asserts, only none or one is possible."""

    @staticmethod
    def of(inner: Item, low: int, high: int | None) -> Item:
        """`low` to `high` times `inner`."""
        if not isinstance(inner, _ASSERTING):
            return repeat(inner, low, high)
        if (low, high) == (1, 1):
            return inner
        if (low, high) == (0, 1):
            return Branch((inner, EMPTY))
        raise UserInputError("an anchor or look-ahead inside a repetition is not supported")


Item = Union[Pattern, Anchor, Ahead, Row, Branch]  # noqa: UP007
_ASSERTING = (Anchor, Ahead, Row, Branch)


def found_in(item: Item) -> Pattern:
    """Texts that have the expression somewhere in them."""
    return _Resolver().texts((ANY_TEXT, item, ANY_TEXT), True)


class _Resolver:
    def __init__(self) -> None:
        self._steps = 0

    def texts(self, items: tuple[Item, ...], at_start: bool) -> Pattern:
        """Rests of texts, up to their end, that the items match; `at_start`: nothing precedes."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise UserInputError("the regular expression has too many anchors and look-aheads")
        if not items:
            return EMPTY
        head, rest = items[0], items[1:]
        if isinstance(head, Row):
            return self.texts(head.items + rest, at_start)
        if isinstance(head, Branch):
            return either(self.texts((option, *rest), at_start) for option in head.options)
        if isinstance(head, Ahead):
            seen = self.texts((head.inner, ANY_TEXT), at_start)
            following = self.texts(rest, at_start)
            return without(following, seen) if head.negative else both(following, seen)
        if head is Anchor.START:
            return self.texts(rest, True) if at_start else NOTHING
        if head is Anchor.END:
            return EMPTY if has_empty_text(self.texts(rest, at_start)) else NOTHING
        assert not isinstance(head, Anchor)
        if not any(isinstance(item, _ASSERTING) for item in rest):
            return concat((head, *(item for item in rest if not isinstance(item, _ASSERTING))))
        if at_start and has_empty_text(head) and any(_mentions_start(item) for item in rest):
            later = concat((without(head, EMPTY), self.texts(rest, False)))
            return either((self.texts(rest, True), later))
        return concat((head, self.texts(rest, False)))


def _mentions_start(item: Item) -> bool:
    if isinstance(item, Row):
        return any(_mentions_start(part) for part in item.items)
    if isinstance(item, Branch):
        return any(_mentions_start(option) for option in item.options)
    return _mentions_start(item.inner) if isinstance(item, Ahead) else item is Anchor.START
