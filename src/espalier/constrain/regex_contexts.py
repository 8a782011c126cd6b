"""What can stand on one side of a place in a text, as far as anchors can tell.

On each side a place has one of a few contexts, and a text that stands there leads from the context
behind it to the one before it by its kind: empty, with a newline at the edge, or other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from espalier.constrain.code_points import complement, includes
from espalier.constrain.membership import is_member
from espalier.constrain.pattern import (
    ANY_CHARACTER,
    ANY_TEXT,
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
from espalier.constrain.regex_tree import (
    Anchor,
    AnchoredAlternation,
    AnchoredConcat,
    AnchoredRepeat,
    Node,
    Restricted,
    choice,
    restricted,
)
from espalier.constrain.simplified import alternation, repeat

_NOT_NEWLINE = CharClass(complement(((10, 10),)))
_NEWLINE = Literal("\n")
Kinds = frozenset[int]
EMPTY_KIND = 0


@dataclass(frozen=True)
class Side:
    """One side of a place: its contexts, numbered from 0, which is the edge of the whole text.

    Kinds of text are numbered too, 0 is the empty one. `holds`: contexts in which an anchor holds.
    `after[kind][context]`: the context beyond a text of a kind. `joined[first][second]`: the kind
    of two texts in the order in which they are written. `texts[kind]`: all texts of it.
    """

    num_contexts: int
    is_left: bool
    holds: dict[Anchor, Collection[int]]
    after: tuple[tuple[int, ...], ...]
    joined: tuple[tuple[int, ...], ...]
    texts: tuple[Pattern, ...]
    kind_of: Callable[[str], int]


# Contexts: at the start, after a newline, elsewhere. Kinds: empty, newline last, other.
LEFT = Side(
    num_contexts=3,
    is_left=True,
    holds={Anchor.START: (0,), Anchor.LINE_START: (0, 1)},
    after=((0, 1, 2), (1, 1, 1), (2, 2, 2)),
    joined=((0, 1, 2), (1, 1, 2), (2, 1, 2)),
    texts=(EMPTY, Concat((ANY_TEXT, _NEWLINE)), Concat((ANY_TEXT, _NOT_NEWLINE))),
    kind_of=lambda text: 0 if not text else 1 if text[-1] == "\n" else 2,
)

# Contexts: at the end, before the newline that ends all, before another newline, elsewhere.
# Kinds: empty, a newline alone, newline first, other.
RIGHT = Side(
    num_contexts=4,
    is_left=False,
    holds={Anchor.END: (0,), Anchor.LAST_LINE_END: (0, 1), Anchor.LINE_END: (0, 1, 2)},
    after=((0, 1, 2, 3), (1, 2, 2, 2), (2, 2, 2, 2), (3, 3, 3, 3)),
    joined=((0, 1, 2, 3), (1, 2, 2, 2), (2, 2, 2, 2), (3, 3, 3, 3)),
    texts=(
        EMPTY,
        _NEWLINE,
        Concat((_NEWLINE, Repeat(ANY_CHARACTER, 1, None))),
        Concat((_NOT_NEWLINE, ANY_TEXT)),
    ),
    kind_of=lambda text: 0 if not text else 3 if text[0] != "\n" else 1 if len(text) == 1 else 2,
)


def kinds_of(node: Node, side: Side) -> Kinds:
    """The kinds of text that a node can match, and perhaps some more."""
    if isinstance(node, Literal):
        return frozenset((side.kind_of(node.text),))
    if isinstance(node, CharClass):
        others = node.ranges not in ((), ((10, 10),))
        characters = ("\n" if includes(node.ranges, 10) else "") + ("a" if others else "")
        return frozenset(side.kind_of(character) for character in characters)
    if isinstance(node, (Concat, AnchoredConcat)):
        found = frozenset((EMPTY_KIND,))
        for part in node.parts:
            found = _joined(found, kinds_of(part, side), side)
        return found
    if isinstance(node, (Alternation, AnchoredAlternation)):
        return frozenset().union(*(kinds_of(option, side) for option in node.options))
    if isinstance(node, (Repeat, AnchoredRepeat)):
        once = kinds_of(node.inner, side)
        twice = _joined(once, once, side)
        found = once | (twice if node.high is None or node.high > 1 else once)
        return found if node.low else found | {EMPTY_KIND}
    if isinstance(node, Both):
        return kinds_of(node.left, side) & kinds_of(node.right, side)
    if isinstance(node, Without):
        return kinds_of(node.left, side)
    if isinstance(node, Restricted):
        return kinds_of(node.inner, side) & kinds_of(node.texts, side)
    if isinstance(node, Anchor):
        return frozenset((EMPTY_KIND,))
    return frozenset(range(len(side.texts)))


def of_kinds(node: Node, wanted: Kinds, side: Side) -> Node:
    """A node that keeps those of its texts that are of some kinds."""
    possible = kinds_of(node, side)
    wanted &= possible
    if wanted == possible:
        return node
    if not wanted:
        return NOTHING
    if isinstance(node, Anchor):
        return node
    if isinstance(node, (Alternation, AnchoredAlternation)):
        return choice([of_kinds(option, wanted, side) for option in node.options])
    texts = [side.texts[kind] for kind in sorted(wanted)]
    if isinstance(node, (Literal, CharClass, Concat, Repeat, Both, Without)):
        if all(isinstance(text, Literal) for text in texts):
            listed = [text for text in texts if isinstance(text, Literal)]
            return alternation([text for text in listed if is_member(node, text.text)])
        if (
            isinstance(node, Repeat)
            and node.low == 0
            and wanted == possible - {EMPTY_KIND}
            and EMPTY_KIND not in kinds_of(node.inner, side)
        ):
            return repeat(node.inner, 1, node.high)
    return restricted(node, alternation(texts))


def _joined(first: Kinds, second: Kinds, side: Side) -> Kinds:
    return frozenset(side.joined[one][other] for one in first for other in second)
