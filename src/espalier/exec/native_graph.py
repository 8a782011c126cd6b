"""Turns a Plan and its tensors into the native executor's graph: names become indices.

Knows Plans and raw tensors. What the graph's widths must be is checked in native code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from espalier import _native
from espalier.errors import ModelFileError, UserInputError
from espalier.exec import plan as ops
from espalier.exec.executor import WeightSource
from espalier.exec.plan import Activation, Plan, RopeStyle, WeightSlot


def build_graph(plan: Plan, source: WeightSource) -> _native.Graph:
    """The graph of a Plan; the tensors stay where they are until an executor packs them.

    Raises ModelFileError for a tensor that does not fit its slot, UserInputError for a Plan whose
    operations do not fit each other.
    """
    geometry = plan.geometry
    try:
        graph = _native.Graph(
            geometry.num_layers,
            geometry.num_heads,
            geometry.num_kv_heads,
            geometry.head_dim,
            geometry.vocab_size,
            geometry.max_context,
        )
        builder = _Builder(plan, graph)
        builder.add_weights(source)
        for op in plan.ops:
            builder.add(op)
    except ValueError as error:
        if isinstance(error, UserInputError):
            raise
        raise UserInputError(f"the plan of {plan.name} cannot run: {error}.") from error
    return graph


class _Builder:
    """Adds the parts of one Plan to one graph, and keeps the indices of their names."""

    def __init__(self, plan: Plan, graph: _native.Graph) -> None:
        self._plan = plan
        self._graph = graph
        self._weights: dict[str, int] = {}
        self._buffers = {entry.name: graph.add_buffer(entry.width) for entry in plan.buffers}
        self._ropes = {
            rope.name: graph.add_rope(
                list(rope.inv_freq), rope.style is RopeStyle.INTERLEAVED, rope.attention_factor
            )
            for rope in plan.ropes
        }

    def add_weights(self, source: WeightSource) -> None:
        """Adds every weight slot with its tensor."""
        for slot in self._plan.weights:
            self._weights[slot.name] = self._add_weight(slot, source)

    def _add_weight(self, slot: WeightSlot, source: WeightSource) -> int:
        raw = source.tensor(slot.tensor)
        if raw.shape != slot.shape:
            raise ModelFileError(
                f"tensor {slot.tensor} has the shape {raw.shape}; {self._plan.name} needs "
                f"{slot.shape}. The file is damaged or of another model."
            )
        try:
            return self._graph.add_weight(
                slot.tensor, list(slot.shape), raw.type.value, raw.data, slot.offset
            )
        except ValueError as error:
            raise ModelFileError(f"tensor {slot.tensor} cannot be read: {error}.") from error

    def add(self, op: ops.Op) -> None:
        """Adds one operation."""
        handler: Callable[[_Builder, Any], None] = _HANDLERS[type(op)]
        handler(self, op)

    def _index(self, kind: str, indices: dict[str, int], name: str) -> int:
        if name not in indices:
            raise UserInputError(
                f"the plan of {self._plan.name} names the {kind} {name!r}; it has "
                f"{', '.join(indices) or 'none'}."
            )
        return indices[name]

    def _buffer(self, name: str) -> int:
        return self._index("buffer", self._buffers, name)

    def _weight(self, name: str) -> int:
        return self._index("weight", self._weights, name)

    def embed(self, op: ops.Embed) -> None:
        self._graph.embed(self._weight(op.table), self._buffer(op.out), op.scale)

    def rms_norm(self, op: ops.RmsNorm) -> None:
        x, out = self._buffer(op.x), self._buffer(op.out)
        self._graph.rms_norm(x, self._weight(op.weight), out, op.eps)

    def head_norm(self, op: ops.HeadNorm) -> None:
        self._graph.head_norm(self._buffer(op.x), self._weight(op.weight), op.head_dim, op.eps)

    def linear(self, op: ops.Linear) -> None:
        bias = None if op.bias is None else self._weight(op.bias)
        x, out = self._buffer(op.x), self._buffer(op.out)
        self._graph.linear(x, self._weight(op.weight), out, bias)

    def apply_rope(self, op: ops.ApplyRope) -> None:
        rope = self._index("rope", self._ropes, op.rope)
        self._graph.apply_rope(self._buffer(op.x), op.head_dim, rope)

    def kv_write(self, op: ops.KvWrite) -> None:
        self._graph.kv_write(op.layer, self._buffer(op.k), self._buffer(op.v))

    def attention(self, op: ops.Attention) -> None:
        q, out = self._buffer(op.q), self._buffer(op.out)
        self._graph.attention(op.layer, q, out, op.scale, op.window, op.soft_cap)

    def gated_activation(self, op: ops.GatedActivation) -> None:
        gate, up, out = self._buffer(op.gate), self._buffer(op.up), self._buffer(op.out)
        self._graph.gated_activation(gate, up, out, op.activation is Activation.GELU_TANH)

    def add_op(self, op: ops.Add) -> None:
        self._graph.add(self._buffer(op.x), self._buffer(op.y), self._buffer(op.out))

    def select_rows(self, op: ops.SelectRows) -> None:
        self._graph.select_rows(self._buffer(op.x), self._buffer(op.out))

    def lm_head(self, op: ops.LmHead) -> None:
        self._graph.lm_head(self._buffer(op.x), self._weight(op.weight), op.soft_cap)


_HANDLERS: dict[type, Callable[[_Builder, Any], None]] = {
    ops.Embed: _Builder.embed,
    ops.RmsNorm: _Builder.rms_norm,
    ops.HeadNorm: _Builder.head_norm,
    ops.Linear: _Builder.linear,
    ops.ApplyRope: _Builder.apply_rope,
    ops.KvWrite: _Builder.kv_write,
    ops.Attention: _Builder.attention,
    ops.GatedActivation: _Builder.gated_activation,
    ops.Add: _Builder.add_op,
    ops.SelectRows: _Builder.select_rows,
    ops.LmHead: _Builder.lm_head,
}
