"""The reference executor: runs a Plan with numpy in float32, one row at a time. The oracle.

It is written to be read and believed, not to be fast. It knows Plans, steps and raw tensors; no
file format, no architecture, no scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from espalier import _native
from espalier.errors import EngineClosedError, UnsupportedError
from espalier.exec import plan as ops
from espalier.exec import reference_ops as kernels
from espalier.exec.executor import (
    ExecutorOptions,
    Float32Array,
    Int32Array,
    StepBatch,
    WeightSource,
)
from espalier.exec.kv_format import resolve_kv_dtype
from espalier.exec.plan import Plan, WeightSlot


def load_weight(slot: WeightSlot, source: WeightSource) -> Float32Array:
    """The float32 values of the tensor that fills a slot, in the slot's shape."""
    raw = source.tensor(slot.tensor)
    assert raw.shape == slot.shape, (slot, raw.shape)
    count = int(np.prod(raw.shape))
    values = _native.unpack(raw.type.value, raw.data, count).reshape(slot.shape)
    return values + np.float32(slot.offset) if slot.offset else values


class ReferenceExecutor:
    """Runs steps of one Plan with numpy (see Executor for the protocol).

    Weights and arithmetic are float32; the KV pool holds float32, rounded to what `kv_dtype` can
    hold ("bf16", "int8"). Raises UnsupportedError for weights other than "auto" and "f32".

    The logits of a row depend on the tokens at its positions alone: each row is computed by
    itself, from arrays whose shapes are fixed by the Plan and the row's position, never by the
    batch. That holds bit for bit as far as numpy gives the same bits for the same shapes and
    values within one process, which it does for its BLAS with a fixed number of threads.
    """

    def __init__(self, plan: Plan, weights: WeightSource, options: ExecutorOptions) -> None:
        if options.weights not in ("auto", "f32"):
            raise UnsupportedError(
                f"the reference executor was asked for weights {options.weights!r}; it computes "
                'in float32 only. Use "f32" or "auto".'
            )
        kv_dtype = resolve_kv_dtype(options.kv_dtype, "f32")
        geometry = plan.geometry
        pool_shape = (
            geometry.num_layers,
            options.num_slots,
            geometry.num_kv_heads,
            geometry.head_dim,
        )
        self.plan = plan
        self.num_slots = options.num_slots
        self._max_rows = options.max_rows
        self._kv_dtype = kv_dtype
        self._weights = {slot.name: load_weight(slot, weights) for slot in plan.weights}
        self._ropes = {rope.name: rope for rope in plan.ropes}
        self._keys: Float32Array = np.zeros(pool_shape, dtype=np.float32)
        self._values: Float32Array = np.zeros(pool_shape, dtype=np.float32)
        self._closed = False

    def run(self, batch: StepBatch) -> Float32Array:
        """Runs one step and returns logits, `[len(batch.logit_rows), vocab_size]`."""
        if self._closed:
            raise EngineClosedError("the executor is closed; make a new one.")
        assert batch.num_rows <= self._max_rows, (batch.num_rows, self._max_rows)
        step = _Step(batch, self._keys, self._values, self._weights, self._ropes)
        step.round_kv = _KV_ROUNDING[self._kv_dtype]
        for op in self.plan.ops:
            step.apply(op)
        assert step.logits is not None, "the plan has no LmHead"
        return step.logits

    @property
    def isa(self) -> str:
        """It knows none: "auto", for who samples after it."""
        return "auto"

    @property
    def thread_pool(self) -> None:
        """It computes on its caller's thread alone."""
        return None

    def memory_bytes(self) -> dict[str, int]:
        """Bytes held: keys "weights", "kv_pool", "scratch"."""
        return {
            "weights": sum(weight.nbytes for weight in self._weights.values()),
            "kv_pool": self._keys.nbytes + self._values.nbytes,
            "scratch": 0,
        }

    def close(self) -> None:
        """Frees weights and pool; a later run raises EngineClosedError."""
        self._closed = True
        self._weights = {}
        self._keys = self._values = np.zeros((0, 0, 0, 0), dtype=np.float32)


class _Step:
    """One step in progress: its row buffers, each a list with one array per row."""

    def __init__(
        self,
        batch: StepBatch,
        keys: Float32Array,
        values: Float32Array,
        weights: dict[str, Float32Array],
        ropes: dict[str, ops.Rope],
    ) -> None:
        self.batch = batch
        self.keys = keys
        self.values = values
        self.weights = weights
        self.ropes = ropes
        self.slots = list(_slots_seen(batch))
        self.rows: dict[str, list[Float32Array]] = {}
        self.round_kv: kernels.Rounding = kernels.unrounded
        self.logits: Float32Array | None = None

    def apply(self, op: ops.Op) -> None:
        """Runs one operation on every row."""
        handler: Callable[[_Step, Any], None] = _HANDLERS[type(op)]
        handler(self, op)

    def embed(self, op: ops.Embed) -> None:
        table, scale = self.weights[op.table], np.float32(op.scale)
        self.rows[op.out] = [table[token_id] * scale for token_id in self.batch.token_ids]

    def rms_norm(self, op: ops.RmsNorm) -> None:
        weight = self.weights[op.weight]
        self.rows[op.out] = [kernels.rms_norm(x, weight, op.eps) for x in self.rows[op.x]]

    def head_norm(self, op: ops.HeadNorm) -> None:
        weight = self.weights[op.weight]
        self.rows[op.x] = [
            kernels.rms_norm(x.reshape(-1, op.head_dim), weight, op.eps).reshape(-1)
            for x in self.rows[op.x]
        ]

    def linear(self, op: ops.Linear) -> None:
        weight = self.weights[op.weight]
        bias = None if op.bias is None else self.weights[op.bias]
        self.rows[op.out] = [kernels.linear(x, weight, bias) for x in self.rows[op.x]]

    def apply_rope(self, op: ops.ApplyRope) -> None:
        rope = self.ropes[op.rope]
        self.rows[op.x] = [
            kernels.rotate(x.reshape(-1, op.head_dim), int(position), rope).reshape(-1)
            for x, position in zip(self.rows[op.x], self.batch.positions, strict=True)
        ]

    def kv_write(self, op: ops.KvWrite) -> None:
        for row, slots in enumerate(self.slots):
            for pool, name in ((self.keys, op.k), (self.values, op.v)):
                heads = self.rows[name][row].reshape(pool.shape[2:])
                pool[op.layer, slots[-1]] = self.round_kv(heads)

    def attention(self, op: ops.Attention) -> None:
        head_dim = self.keys.shape[3]
        outputs = []
        for q, slots in zip(self.rows[op.q], self.slots, strict=True):
            seen = slots[-op.window :] if op.window else slots
            out = kernels.attention(
                q.reshape(-1, head_dim),
                self.keys[op.layer, seen],
                self.values[op.layer, seen],
                op.scale,
                op.soft_cap,
            )
            outputs.append(out.reshape(-1))
        self.rows[op.out] = outputs

    def gated_activation(self, op: ops.GatedActivation) -> None:
        self.rows[op.out] = [
            kernels.activate(gate, op.activation) * up
            for gate, up in zip(self.rows[op.gate], self.rows[op.up], strict=True)
        ]

    def add(self, op: ops.Add) -> None:
        self.rows[op.out] = [x + y for x, y in zip(self.rows[op.x], self.rows[op.y], strict=True)]

    def select_rows(self, op: ops.SelectRows) -> None:
        self.rows[op.out] = [self.rows[op.x][row] for row in self.batch.logit_rows]

    def lm_head(self, op: ops.LmHead) -> None:
        weight = self.weights[op.weight]
        self.logits = np.zeros((len(self.rows[op.x]), len(weight)), dtype=np.float32)
        for out, x in zip(self.logits, self.rows[op.x], strict=True):
            out[:] = kernels.soft_capped(kernels.linear(x, weight, None), op.soft_cap)
        if self.batch.wanted_starts is not None:
            _keep_wanted(self.logits, self.batch)


def _keep_wanted(logits: Float32Array, batch: StepBatch) -> None:
    """Makes the logits that nobody wants NaN, so that who reads one all the same finds out."""
    starts, ids = batch.wanted_starts, batch.wanted_ids
    assert starts is not None
    assert ids is not None
    assert len(starts) == len(logits) + 1
    for row, begin, end in zip(logits, starts[:-1], starts[1:], strict=True):
        if begin < end:
            kept = row[ids[begin:end]]
            row[:] = np.nan
            row[ids[begin:end]] = kept


_KV_ROUNDING: dict[str, kernels.Rounding] = {
    "bf16": kernels.round_to_bf16,
    "int8": kernels.round_to_int8,
    "f32": kernels.unrounded,
}

_HANDLERS: dict[type, Callable[[_Step, Any], None]] = {
    ops.Embed: _Step.embed,
    ops.RmsNorm: _Step.rms_norm,
    ops.HeadNorm: _Step.head_norm,
    ops.Linear: _Step.linear,
    ops.ApplyRope: _Step.apply_rope,
    ops.KvWrite: _Step.kv_write,
    ops.Attention: _Step.attention,
    ops.GatedActivation: _Step.gated_activation,
    ops.Add: _Step.add,
    ops.SelectRows: _Step.select_rows,
    ops.LmHead: _Step.lm_head,
}


def _slots_seen(batch: StepBatch) -> Iterator[Int32Array]:
    """For each row, the slots of positions 0 to its own."""
    for sequence in range(len(batch.row_starts) - 1):
        slots = batch.slot_ids[batch.slot_starts[sequence] : batch.slot_starts[sequence + 1]]
        for row in range(batch.row_starts[sequence], batch.row_starts[sequence + 1]):
            yield slots[: batch.positions[row] + 1]
