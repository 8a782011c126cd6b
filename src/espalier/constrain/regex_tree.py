"""Regular expressions with anchors in them, between the parser and patterns.

A part without anchors is a Pattern already; the classes here hold what is not yet one, and the
functions build nodes in simple form. `regex_anchors` makes them patterns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeGuard, Union

from espalier.constrain.pattern import (
    EMPTY,
    NOTHING,
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)
from espalier.constrain.simplified import alternation, concat, repeat


class Anchor(Enum):
    r"""A condition on the place where it stands; it matches no character.

    START: at the start (`^`, `\A`). LINE_START: there, or after a newline (`^` with m). END: at the
    end (`\Z`). LAST_LINE_END: there, or before the newline that is the last character (`$`).
    LINE_END: at the end, or before a newline (`$` with m).
    """

    START = "start"
    LINE_START = "line start"
    END = "end"
    LAST_LINE_END = "last line end"
    LINE_END = "line end"


@dataclass(frozen=True, slots=True)
class AnchoredConcat:
    """Parts one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnchoredAlternation:
    """Any of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class AnchoredRepeat:
    """`low` to `high` times `inner`; the quantifier is at `position`."""

    inner: Node
    low: int
    high: int | None
    position: int


@dataclass(frozen=True, slots=True)
class Restricted:
    """What `inner` matches, where that is one of `texts`."""

    inner: Node
    texts: Pattern


@dataclass(frozen=True, slots=True)
class Undecided:
    """A repeat, its quantifier at `position`, that no pattern was found for."""

    position: int


Anchored = Union[  # noqa: UP007
    Anchor, AnchoredConcat, AnchoredAlternation, AnchoredRepeat, Restricted, Undecided
]
Node = Union[Pattern, Anchored]  # noqa: UP007
_PATTERNS = (Literal, CharClass, Concat, Alternation, Repeat, Both, Without)
_WITHOUT_ANCHORS = (str, *_PATTERNS)


def is_pattern(node: Node) -> TypeGuard[Pattern]:
    """Whether a node has no anchors in it."""
    return isinstance(node, _PATTERNS)


def sequence(parts: Sequence[str | Node]) -> Node:
    """Nodes and texts one after the other."""
    patterns = [part for part in parts if isinstance(part, _WITHOUT_ANCHORS)]
    if len(patterns) == len(parts):
        return concat(patterns)
    kept: list[Node] = []
    plain: list[str | Pattern] = []
    for part in parts:
        for piece in part.parts if isinstance(part, AnchoredConcat) else (part,):
            if isinstance(piece, _WITHOUT_ANCHORS):
                plain.append(piece)
                continue
            if plain:
                kept.append(concat(plain))
                plain = []
            kept.append(piece)
    if not kept:
        return concat(plain)
    if plain:
        kept.append(concat(plain))
    if NOTHING in kept:
        return NOTHING
    kept = [node for node in kept if node != EMPTY]
    return kept[0] if len(kept) == 1 else AnchoredConcat(tuple(kept))


def choice(options: Sequence[Node]) -> Node:
    """Any of some nodes."""
    patterns = [option for option in options if isinstance(option, _PATTERNS)]
    if len(patterns) == len(options):
        return alternation(patterns)
    kept = tuple(option for option in options if option != NOTHING)
    return kept[0] if len(kept) == 1 else AnchoredAlternation(kept)


def rounds(inner: Node, low: int, high: int | None, position: int) -> Node:
    """`low` to `high` times a node, by the quantifier at `position`."""
    if isinstance(inner, _PATTERNS):
        return repeat(inner, low, high)
    if high == 0:
        return EMPTY
    if low == high == 1 or isinstance(inner, Undecided):
        return inner
    return AnchoredRepeat(inner, low, high, position)


def restricted(inner: Node, texts: Pattern) -> Node:
    """A node that keeps those of its texts that `texts` has."""
    if isinstance(inner, _PATTERNS):
        return Both(inner, texts)
    return inner if isinstance(inner, Undecided) else Restricted(inner, texts)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly in a node."""
    if isinstance(node, (Concat, AnchoredConcat)):
        return node.parts
    if isinstance(node, (Alternation, AnchoredAlternation)):
        return node.options
    if isinstance(node, (Repeat, AnchoredRepeat, Restricted)):
        return (node.inner,)
    if isinstance(node, (Both, Without)):
        return (node.left, node.right)
    return ()
