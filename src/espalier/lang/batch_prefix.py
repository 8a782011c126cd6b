"""What the items of a batch begin with: the prompt that all share, and the order of their starts.

Two passes on a batch of a compiled program. Proof obligation: neither changes what can be read. The
shared prompt is computed without generating before the first item calls the model, as at a fork
(lang/prefix.py). The order says which item starts first; results, seeds and errors belong to the
items by their place in the batch, and items know nothing of each other.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from espalier.lang.abstract import SglArgument
from espalier.lang.graph import ROOT, AppendNode, DroppedNode, Graph
from espalier.lang.ir import SglConstantText, SglExpr, SglRoleBegin, SglRoleEnd, as_expr
from espalier.lang.passes.share_fork_prefixes import common_beginning
from espalier.lang.prefix import SharedPrefix
from espalier.lang.stream import Stream
from espalier.lang.transcript import Transcript, extended

_ROLES = (SglRoleBegin, SglRoleEnd)


def beginning(graph: Graph, arguments: Mapping[str, Any]) -> tuple[SglExpr, ...]:
    """What the program appends before its first call, fork or question, with these arguments.

    Neighbouring texts are one constant.
    """
    found: list[SglExpr] = []
    for node in graph.nodes:
        if isinstance(node, DroppedNode):
            continue
        if node.state != ROOT or not isinstance(node, AppendNode):
            break
        expr = node.expr
        if isinstance(expr, SglArgument):
            expr = as_expr(arguments[expr.name])
        if isinstance(expr, SglConstantText):
            if found and isinstance(found[-1], SglConstantText):
                expr = SglConstantText(found.pop().value + expr.value)  # type: ignore[attr-defined]
        elif not isinstance(expr, _ROLES):
            break
        found.append(expr)
    return tuple(found)


def batch_order(beginnings: Sequence[Sequence[SglExpr]], window: int) -> list[int]:
    """An order of items that visits their prefix tree depth first, within windows of the batch.

    With a cache that holds the longest prompt, it has the best hit rate that any order has (paper,
    theorem 3.1). Lexicographic order of the texts is such an order.
    """
    keys = ["\0".join(_spelled(expr) for expr in exprs) for exprs in beginnings]
    order: list[int] = []
    for start in range(0, len(keys), window):
        order += sorted(range(start, min(start + window, len(keys))), key=keys.__getitem__)
    return order


def _spelled(expr: SglExpr) -> str:
    return expr.value if isinstance(expr, SglConstantText) else repr(expr)


class BatchPrefix:
    """The prompt that all items of a batch begin with; computed once, when the first needs it."""

    def __init__(self, beginnings: Sequence[Sequence[SglExpr]]) -> None:
        self.exprs = common_beginning(beginnings) if len(beginnings) > 1 else ()
        self._shared: SharedPrefix | None = None
        self._lock = threading.Lock()

    def attach(self, stream: Stream) -> None:
        """Has the stream of an item wait for the prompt before its first call."""
        if not any(isinstance(expr, SglConstantText) for expr in self.exprs):
            return
        program = stream.program
        with self._lock:
            if self._shared is None:
                prompt = extended(Transcript(), self.exprs, program.role_template)
                self._shared = SharedPrefix(program, prompt, None)
        stream.begin_after(self._shared)
