"""Patterns: sets of texts, as values. What regexes, choices and regular JSON schemas become.

A pattern knows no syntax that it was written in, no bytes and no automaton. Texts are sequences of
Unicode scalar values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

CodePoints = tuple[tuple[int, int], ...]  # inclusive ranges, sorted, disjoint, not adjacent


@dataclass(frozen=True, slots=True)
class Literal:
    """One text; "" is the empty one."""

    text: str


@dataclass(frozen=True, slots=True)
class CharClass:
    """One character of some ranges. Surrogates in them stand for nothing; no ranges: no text."""

    ranges: CodePoints


@dataclass(frozen=True, slots=True)
class Concat:
    """Texts of the parts, one after the other."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """Texts of any of the options; no options: no text."""

    options: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`low` to `high` texts of `inner` in a row; `high` None: any number from `low` on."""

    inner: Pattern
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Both:
    """Texts that both patterns have."""

    left: Pattern
    right: Pattern


@dataclass(frozen=True, slots=True)
class Without:
    """Texts of `left` that `right` does not have."""

    left: Pattern
    right: Pattern


Pattern = Union[Literal, CharClass, Concat, Alternation, Repeat, Both, Without]  # noqa: UP007

EMPTY = Literal("")
NOTHING = Alternation(())
ANY_CHARACTER = CharClass(((0, 0xD7FF), (0xE000, 0x10FFFF)))
ANY_TEXT = Repeat(ANY_CHARACTER, 0, None)
