"""Rewrites that would lengthen shared prefixes but may change what a program means.

They are reported with what they would save on given inputs, and never applied: a prompt in another
order is another prompt (paper, section 4: moving constant parts of a prompt to its front).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from espalier.errors import UserInputError, shown
from espalier.lang.abstract import SglArgument
from espalier.lang.graph import ROOT, AppendNode, DroppedNode, Graph
from espalier.lang.ir import SglConstantText, SglExpr, SglRoleBegin, SglRoleEnd
from espalier.lang.location import SourceLine

MAX_PARTS = 64  # of one prompt; a longer one is looked at up to here
_Part = tuple[SglExpr, SourceLine | None]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One rewrite.

    Attributes:
        message: what to move, and where from.
        saved_tokens: prompt tokens that the batch would compute less, with all prompts cached.
        computed_tokens: those that it computes now.
    """

    message: str
    saved_tokens: int
    computed_tokens: int

    def __str__(self) -> str:
        share = self.saved_tokens / max(1, self.computed_tokens)
        return f"{self.message}: saves {self.saved_tokens} of {self.computed_tokens} ({share:.0%})"


def suggestions(
    graph: Graph, batch: Sequence[Mapping[str, Any]], count_tokens: Callable[[str], int]
) -> list[Suggestion]:
    """Rewrites of the prompt before the first call, the one that saves most first.

    Looked at: constants that stand after an argument, moved before it; arguments with few values,
    moved before those with many. Counts are of text, cut where parts meet.
    Raises UserInputError for items that lack an argument.
    """
    if isinstance(batch, (str, bytes, Mapping)) or not isinstance(batch, Sequence):
        raise UserInputError(
            f"the batch is of type {type(batch).__name__}; a list of dicts of arguments is allowed."
        )
    items = [_item(graph, index, given) for index, given in enumerate(batch)]
    found = []
    for parts in _messages(graph):
        exprs = [expr for expr, _ in parts]
        now = computed(exprs, items, count_tokens)
        for message, moved in _rewrites(parts, items):
            saved = now - computed(moved, items, count_tokens)
            if saved > 0:
                found.append(Suggestion(message, saved, now))
    return sorted(found, key=lambda suggestion: -suggestion.saved_tokens)


def _item(graph: Graph, index: int, given: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise UserInputError(
            f"item {index} of the batch is {shown(given)}; a dict of arguments is allowed."
        )
    item = {**graph.defaults, **given}
    missing = [name for name in graph.arguments if name not in item]
    if missing:
        raise UserInputError(f"item {index} of the batch lacks {', '.join(missing)}.")
    return item


def _messages(graph: Graph) -> Iterator[list[_Part]]:
    """The runs of constants and arguments before the first call: parts may move within one."""
    run: list[_Part] = []
    for node in graph.nodes:
        if isinstance(node, DroppedNode):
            continue
        if node.state != ROOT or not isinstance(node, AppendNode):
            break
        if isinstance(node.expr, (SglConstantText, SglArgument)):
            run.append((node.expr, node.location))
        else:
            if run:
                yield run[:MAX_PARTS]
            run = []
            if not isinstance(node.expr, (SglRoleBegin, SglRoleEnd)):
                return
    if run:
        yield run[:MAX_PARTS]


def _rewrites(
    parts: Sequence[_Part], items: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, list[SglExpr]]]:
    exprs = [expr for expr, _ in parts]
    first = next((i for i, expr in enumerate(exprs) if isinstance(expr, SglArgument)), None)
    if first is None:
        return
    for index in range(first + 1, len(exprs)):
        expr, place = parts[index]
        if isinstance(expr, SglConstantText) and expr.value.strip():
            moved = [*exprs[:first], expr, *exprs[first:index], *exprs[index + 1 :]]
            at = f" ({place})" if place else ""
            yield (
                f"move the constant {_short(expr.value)}{at} before {exprs[first]!r}",
                moved,
            )
    few = sorted(
        (i for i, expr in enumerate(exprs) if isinstance(expr, SglArgument)),
        key=lambda i: len({str(item[exprs[i].name]) for item in items}),  # type: ignore[attr-defined]
    )
    arguments = [i for i, expr in enumerate(exprs) if isinstance(expr, SglArgument)]
    if few != arguments:
        moved = list(exprs)
        for slot, source in zip(arguments, few, strict=True):
            moved[slot] = exprs[source]
        yield f"put the arguments in the order {[exprs[i] for i in few]!r}", moved


def _short(text: str) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:57]}...'"


def computed(
    exprs: Sequence[SglExpr],
    items: Sequence[Mapping[str, Any]],
    count_tokens: Callable[[str], int],
) -> int:
    """Tokens of the prefix tree of all prompts: what a batch computes with all of it cached."""
    seen: dict[tuple[int, str], int] = {}  # (node of the tree, text) -> node below
    counts: dict[str, int] = {}
    total = 0
    for item in items:
        node = 0
        for expr in exprs:
            if isinstance(expr, SglArgument):
                text = str(item[expr.name])
            else:
                assert isinstance(expr, SglConstantText)
                text = expr.value
            below = seen.get((node, text))
            if below is None:
                below = seen[node, text] = len(seen) + 1
                if text not in counts:
                    counts[text] = count_tokens(text)
                total += counts[text]
            node = below
    return total
