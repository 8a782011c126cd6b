"""Anchors of regular expressions, replaced by what they mean where they stand.

The whole output must match, so what stands on either side of an anchor is known as far as the
expression says it. Left-hand anchors (`^`) are replaced first, then right-hand ones (`$`), by one
procedure: for each node, the form that it has in each context (see `regex_contexts`).
"""

from __future__ import annotations

from collections.abc import Callable

from espalier.constrain.pattern import EMPTY, NOTHING, Pattern
from espalier.constrain.regex_contexts import EMPTY_KIND, LEFT, RIGHT, Side, kinds_of, of_kinds
from espalier.constrain.regex_fault import RegexFaultError
from espalier.constrain.regex_limits import check_limits
from espalier.constrain.regex_tree import (
    Anchor,
    AnchoredAlternation,
    AnchoredConcat,
    AnchoredRepeat,
    Node,
    Restricted,
    Undecided,
    children,
    choice,
    is_pattern,
    restricted,
    rounds,
    sequence,
)

MAX_INNER_ANCHORS = 100
_MAX_SPLITS = 200  # of a text by kind, where one context after it is not as good as another

Forms = list[Node]  # of a node, by context


def without_anchors(node: Node) -> Pattern:
    """The pattern of a whole expression.

    Raises RegexFaultError where that needs to tell too many cases apart, or makes it too large.
    """
    for side in (LEFT, RIGHT):
        node = _at_edge(node, side)
    if is_pattern(node):
        return node
    _check_number(node)
    for side in (LEFT, RIGHT):
        node = _Replacement(side).forms(node)[0]
    check_limits(node)
    if is_pattern(node):
        return node
    raise RegexFaultError(
        "what is repeated here has an anchor that holds in some rounds and not in others, which "
        "is not supported; move the anchor out of the repeat",
        _undecided_position(node) or 0,
    )


def _check_number(node: Node) -> None:
    waiting, num_anchors = [node], 0
    while waiting:
        here = waiting.pop()
        if isinstance(here, Anchor):
            num_anchors += 1
        elif not is_pattern(here):
            waiting.extend(children(here))
    if num_anchors > MAX_INNER_ANCHORS:
        raise RegexFaultError(
            f"{num_anchors} anchors stand elsewhere than at the start or the end; at most "
            f"{MAX_INNER_ANCHORS} are allowed",
            0,
        )


def _at_edge(node: Node, side: Side) -> Node:
    """A node beside the edge of the whole text, without the anchors that always hold there.

    These are most anchors, and need no forms in contexts.
    """
    if isinstance(node, Anchor):
        return EMPTY if 0 in side.holds.get(node, ()) else node
    if isinstance(node, AnchoredAlternation):
        return choice([_at_edge(option, side) for option in node.options])
    if not isinstance(node, AnchoredConcat):
        return node
    parts = list(node.parts if side.is_left else reversed(node.parts))
    for index, part in enumerate(parts):
        parts[index] = _at_edge(part, side)
        if parts[index] != EMPTY:
            break
    return sequence(parts if side.is_left else parts[::-1])


class _Replacement:
    """The replacement of the anchors of one side."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._contexts = range(side.num_contexts)
        self._num_splits = 0

    def forms(self, node: Node) -> Forms:
        """What a node is in each context."""
        if isinstance(node, Anchor):
            holds = self._side.holds.get(node)
            if holds is None:
                return [node for _ in self._contexts]
            return [EMPTY if context in holds else NOTHING for context in self._contexts]
        if isinstance(node, AnchoredConcat):
            return self._concat(node)
        if isinstance(node, AnchoredAlternation):
            options = [self.forms(option) for option in node.options]
            return _shared([choice(forms) for forms in zip(*options, strict=True)])
        if isinstance(node, AnchoredRepeat):
            inner = self.forms(node.inner)
            return _shared(
                [
                    self._repeat(inner, context, node.low, node.high, node.position)
                    for context in self._contexts
                ]
            )
        if isinstance(node, Restricted):
            texts = node.texts
            return _mapped(self.forms(node.inner), lambda form: restricted(form, texts))
        return [node for _ in self._contexts]

    def _concat(self, node: AnchoredConcat) -> Forms:
        far: Forms = [EMPTY for _ in self._contexts]
        # The last part that the context reaches comes first.
        for part in reversed(node.parts) if self._side.is_left else node.parts:
            near = self.forms(part)
            if all(form is far[0] for form in far):
                far = self._next_to(near, far[0])
            else:
                far = _shared(
                    [self._joined(near[context], context, far) for context in self._contexts]
                )
        return far

    def _next_to(self, near: Forms, far: Node) -> Forms:
        """`near` with `far` beyond it, which is the same in every context, as in most places."""
        return _mapped(near, lambda form: self._in_order(form, far))

    def _joined(self, near: Node, context: int, far: Forms) -> Node:
        """`near`, which is in a context, and beyond it what `far` is in the context there."""
        groups: list[tuple[Node, set[int]]] = []  # of the kinds of near's text by what follows
        for kind in kinds_of(near, self._side):
            beyond = far[self._side.after[kind][context]]
            same = next((kinds for node, kinds in groups if node == beyond), None)
            if same is None:
                groups.append((beyond, {kind}))
            else:
                same.add(kind)
        if len(groups) > 1:
            self._count_split()
        return choice(
            [
                self._in_order(of_kinds(near, frozenset(kinds), self._side), beyond)
                for beyond, kinds in groups
                if beyond != NOTHING
            ]
        )

    def _repeat(
        self, inner: Forms, context: int, low: int, high: int | None, position: int
    ) -> Node:
        """`low` to `high` rounds of what `inner` is in each context."""
        if high == 0:
            return EMPTY
        own = inner[context]
        reached = self._reached(inner, context)
        if all(inner[other] == own for other in reached):
            return rounds(own, low, high, position)
        if high == 1:
            return own if low else choice([EMPTY, own])
        if context in reached:
            return Undecided(position)
        kinds = kinds_of(own, self._side)
        nothing = of_kinds(own, frozenset((EMPTY_KIND,)), self._side) if low else EMPTY
        options = [nothing]
        rest_high = None if high is None else high - 1
        for kind in sorted(kinds - {EMPTY_KIND}):
            self._count_split()
            beyond = self._side.after[kind][context]
            text = of_kinds(own, frozenset((kind,)), self._side)
            rest = self._repeat(inner, beyond, max(low - 1, 0), rest_high, position)
            options.append(self._in_order(text, rest))
            if low > 1 and nothing != NOTHING:  # rounds without text make up the number
                rest = self._repeat(inner, beyond, 0, rest_high, position)
                options.append(self._in_order(nothing, self._in_order(text, rest)))
        return choice(options)

    def _reached(self, inner: Forms, context: int) -> set[int]:
        """Contexts of later rounds that follow a round with text, where the first is in one."""
        reached: set[int] = set()
        waiting = [context]
        while waiting:
            here = waiting.pop()
            for kind in kinds_of(inner[here], self._side) - {EMPTY_KIND}:
                beyond = self._side.after[kind][here]
                if beyond not in reached:
                    reached.add(beyond)
                    waiting.append(beyond)
        return reached

    def _in_order(self, near: Node, far: Node) -> Node:
        return sequence((near, far) if self._side.is_left else (far, near))

    def _count_split(self) -> None:
        self._num_splits += 1
        if self._num_splits > _MAX_SPLITS:
            raise RegexFaultError(
                "too many anchors stand at places where they hold for some texts and not for "
                "others; leave out those that change nothing",
                0,
            )


def _mapped(forms: Forms, change: Callable[[Node], Node]) -> Forms:
    """What `change` makes of each form, equal ones of equal ones."""
    first = change(forms[0])
    if all(form is forms[0] for form in forms):
        return [first for _ in forms]
    return _shared([first, *map(change, forms[1:])])


def _shared(forms: Forms) -> Forms:
    """Equal forms as one object, so that comparing what is built of them stays cheap."""
    unique: Forms = []
    for form in forms:
        unique.append(next((other for other in unique if other == form), form))
    return unique


def _undecided_position(node: Node) -> int | None:
    waiting = [node]
    seen: set[int] = set()
    while waiting:
        here = waiting.pop()
        if isinstance(here, Undecided):
            return here.position
        if id(here) not in seen:
            seen.add(id(here))
            waiting.extend(children(here))
    return None
