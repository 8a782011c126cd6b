"""Small seeded plans with their tensors, steps over them, and single operations made visible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from espalier import _native
from espalier.exec import plan as ops
from espalier.exec.executor import (
    ExecutorOptions,
    Float32Array,
    RawTensor,
    StepBatch,
    TensorType,
    WeightSource,
)
from espalier.exec.native import NativeExecutor
from espalier.exec.plan import Activation, Buffer, Geometry, Plan, Rope, RopeStyle, WeightSlot

ISAS = tuple(_native.available_isas().split(", "))
EPS = 1e-6


class Tensors:
    """Float tensors by name."""

    def __init__(self, values: Mapping[str, Float32Array]) -> None:
        self.values = dict(values)

    def tensor(self, name: str) -> RawTensor:
        values = np.ascontiguousarray(self.values[name], dtype=np.float32)
        return RawTensor(name, TensorType.F32, values.shape, values.reshape(-1).view(np.uint8))


def random_tensors(plan: Plan, seed: int) -> Tensors:
    """Matrices that keep the size of what they multiply; vectors near 1."""
    random = np.random.default_rng(seed)
    values = {}
    for slot in plan.weights:
        scale = slot.shape[-1] ** -0.5 if slot.is_matrix else 0.2
        mean = 0.0 if slot.is_matrix else 1.0 - slot.offset
        values[slot.tensor] = random.normal(mean, scale, slot.shape).astype(np.float32)
    return Tensors(values)


def slots_of(**shapes: tuple[int, ...]) -> tuple[WeightSlot, ...]:
    return tuple(WeightSlot(name, shape, name) for name, shape in shapes.items())


def llama_like(num_layers: int = 2, max_context: int = 4096) -> Plan:
    """Three query heads on each of two key heads, interleaved rotation, a tied head."""
    hidden, heads, kv_heads, head_dim, mlp, vocab = 72, 6, 2, 24, 100, 97
    layer: list[ops.Op] = []
    for index in range(num_layers):
        layer += [
            ops.RmsNorm("x", "norm1", "h", EPS),
            ops.Linear("h", "q", "q"),
            ops.Linear("h", "k", "k", bias="k_bias"),
            ops.Linear("h", "v", "v"),
            ops.ApplyRope("q", head_dim, "rope"),
            ops.ApplyRope("k", head_dim, "rope"),
            ops.KvWrite(index, "k", "v"),
            ops.Attention(index, "q", "a", head_dim**-0.5),
            ops.Linear("a", "o", "h"),
            ops.Add("x", "h", "x"),
            ops.RmsNorm("x", "norm2", "h", EPS),
            ops.Linear("h", "gate", "gate"),
            ops.Linear("h", "up", "up"),
            ops.GatedActivation("gate", "up", "gate", Activation.SILU),
            ops.Linear("gate", "down", "h"),
            ops.Add("x", "h", "x"),
        ]
    widths = {"x": hidden, "h": hidden, "q": heads * head_dim, "k": kv_heads * head_dim}
    widths |= {"v": kv_heads * head_dim, "a": heads * head_dim, "gate": mlp, "up": mlp}
    return Plan(
        name="llama-like",
        geometry=Geometry(num_layers, hidden, heads, kv_heads, head_dim, vocab, max_context),
        buffers=tuple(Buffer(name, width) for name, width in widths.items()),
        weights=slots_of(
            table=(vocab, hidden),
            norm1=(hidden,),
            norm2=(hidden,),
            q=(heads * head_dim, hidden),
            k=(kv_heads * head_dim, hidden),
            k_bias=(kv_heads * head_dim,),
            v=(kv_heads * head_dim, hidden),
            o=(hidden, heads * head_dim),
            gate=(mlp, hidden),
            up=(mlp, hidden),
            down=(hidden, mlp),
        ),
        ropes=(Rope("rope", _frequencies(head_dim // 2), RopeStyle.INTERLEAVED),),
        ops=(
            ops.Embed("table", "x"),
            *layer,
            ops.RmsNorm("x", "norm1", "x", EPS),
            ops.SelectRows("x", "h"),
            ops.LmHead("h", "table"),
        ),
    )


def gemma_like(window: int = 20, max_context: int = 4096) -> Plan:
    """One key head, head norms, scaled embedding, a window in layer 0, soft caps, its own head."""
    hidden, heads, head_dim, mlp, vocab = 80, 4, 40, 64, 130
    layer: list[ops.Op] = []
    for index in range(2):
        rope = ("local", "global")[index]
        layer += [
            ops.RmsNorm("x", "norm", "h", EPS),
            ops.Linear("h", "q", "q"),
            ops.Linear("h", "k", "k"),
            ops.HeadNorm("q", "q_norm", head_dim, EPS),
            ops.HeadNorm("k", "q_norm", head_dim, EPS),
            ops.Linear("h", "v", "v"),
            ops.ApplyRope("q", head_dim, rope),
            ops.ApplyRope("k", head_dim, rope),
            ops.KvWrite(index, "k", "v"),
            ops.Attention(index, "q", "a", 0.2, window=window * (1 - index), soft_cap=3.0),
            ops.Linear("a", "o", "h"),
            ops.RmsNorm("h", "norm", "h", EPS),
            ops.Add("h", "x", "x"),
            ops.Linear("x", "gate", "gate"),
            ops.Linear("x", "up", "up"),
            ops.GatedActivation("gate", "up", "up", Activation.GELU_TANH),
            ops.Linear("up", "down", "h"),
            ops.Add("x", "h", "x"),
        ]
    widths = {"x": hidden, "h": hidden, "q": heads * head_dim, "k": head_dim, "v": head_dim}
    widths |= {"a": heads * head_dim, "gate": mlp, "up": mlp}
    weights = slots_of(
        table=(vocab, hidden),
        head=(vocab, hidden),
        q_norm=(head_dim,),
        q=(heads * head_dim, hidden),
        k=(head_dim, hidden),
        v=(head_dim, hidden),
        o=(hidden, heads * head_dim),
        gate=(mlp, hidden),
        up=(mlp, hidden),
        down=(hidden, mlp),
    )
    return Plan(
        name="gemma-like",
        geometry=Geometry(2, hidden, heads, 1, head_dim, vocab, max_context),
        buffers=tuple(Buffer(name, width) for name, width in widths.items()),
        weights=(*weights, WeightSlot("norm", (hidden,), "norm", offset=1.0)),
        ropes=(
            Rope("local", _frequencies(head_dim // 2), RopeStyle.HALF),
            Rope("global", _frequencies(head_dim // 4), RopeStyle.HALF, attention_factor=1.1),
        ),
        ops=(
            ops.Embed("table", "x", hidden**0.5),
            *layer,
            ops.SelectRows("x", "h"),
            ops.RmsNorm("h", "norm", "h", EPS),
            ops.LmHead("h", "head", soft_cap=8.0),
        ),
    )


def _frequencies(count: int) -> tuple[float, ...]:
    return tuple(10000.0 ** (-i / count) for i in range(count))


Part = tuple[Sequence[int], int, Sequence[int]]  # tokens, position of the first row, slots


def batch_of(parts: Sequence[Part], logit_rows: Sequence[int] | None = None) -> StepBatch:
    """A step of (tokens of the sequence so far, position of its first row, slots) per sequence."""
    positions = [np.arange(first, len(tokens)) for tokens, first, _ in parts]
    starts = np.cumsum([0] + [len(rows) for rows in positions])
    context = np.cumsum([0] + [len(tokens) for tokens, _, _ in parts])
    slots = [np.asarray(slots[: len(tokens)]) for tokens, _, slots in parts]
    wanted = np.arange(starts[-1]) if logit_rows is None else np.asarray(logit_rows)
    return StepBatch(
        token_ids=np.concatenate([np.asarray(tokens[first:]) for tokens, first, _ in parts]).astype(
            np.int32
        ),
        positions=np.concatenate(positions).astype(np.int32),
        row_starts=starts.astype(np.int32),
        slot_ids=np.concatenate(slots).astype(np.int32),
        slot_starts=context.astype(np.int32),
        logit_rows=wanted.astype(np.int32),
    )


def tokens_for(plan: Plan, count: int, seed: int = 0) -> list[int]:
    random = np.random.default_rng(seed)
    return [int(token) for token in random.integers(0, plan.geometry.vocab_size, count)]


def run_in_chunks(
    executor: NativeExecutor, tokens: Sequence[int], slots: Sequence[int], chunk: int
) -> Float32Array:
    """Logits of every position of one sequence, computed `chunk` rows at a time."""
    borders = [*range(0, len(tokens), chunk), len(tokens)]
    rows = [
        executor.run(batch_of([(tokens[:last], first, slots)])).copy()
        for first, last in pairwise(borders)
    ]
    return np.concatenate(rows)


PLANS: dict[str, Callable[[], Plan]] = {"llama": llama_like, "gemma": gemma_like}


def same_bits(got: Float32Array, want: Float32Array, message: str = "") -> None:
    """Fails unless both hold the same bits, of zeros and NaNs too."""
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32), err_msg=message)


def native(plan: Plan, tensors: WeightSource, **options: object) -> NativeExecutor:
    """A native executor with 512 slots and one thread unless told otherwise."""
    given: dict[str, object] = {"num_slots": 512, "num_threads": 1, **options}
    return NativeExecutor(plan, tensors, ExecutorOptions(**given))  # type: ignore[arg-type]


def run_op(
    inputs: Mapping[str, Float32Array],
    operations: Sequence[ops.Op],
    out: tuple[str, int],
    *,
    weights: Mapping[str, Float32Array] | None = None,
    geometry: Geometry | None = None,
    ropes: tuple[Rope, ...] = (),
    positions: Sequence[int] | None = None,
    isa: str = "auto",
    **options: object,
) -> Float32Array:
    """What `operations` leave in buffer `out` (name, width) when `inputs` hold the given rows.

    Rows come in by one embedding table per input and go out by an identity head, both exact in
    float32. Row i has position i, or `positions[i]` (then each row is a sequence of its own).
    """
    num_rows, width = len(next(iter(inputs.values()))), out[1]
    vocab = max(num_rows, width)
    base = geometry or Geometry(0, width, 1, 1, width, vocab, 1 << 20)
    sizes = Geometry(
        base.num_layers, width, base.num_heads, base.num_kv_heads, base.head_dim, vocab, 1 << 20
    )
    tables = {
        name: np.vstack([rows, np.zeros((vocab - num_rows, rows.shape[1]), np.float32)])
        for name, rows in inputs.items()
    }
    tensors = {f"table {name}": rows for name, rows in tables.items()} | dict(weights or {})
    tensors["identity"] = np.eye(vocab, width, dtype=np.float32)
    buffers = {name: rows.shape[1] for name, rows in inputs.items()} | {out[0]: width}
    plan = Plan(
        name="one operation",
        geometry=sizes,
        buffers=tuple(Buffer(name, w) for name, w in {**buffers, "selected": width}.items()),
        weights=tuple(WeightSlot(name, value.shape, name) for name, value in tensors.items()),
        ropes=ropes,
        ops=(
            *(ops.Embed(f"table {name}", name) for name in inputs),
            *operations,
            ops.SelectRows(out[0], "selected"),
            ops.LmHead("selected", "identity"),
        ),
    )
    if positions is None:
        batch = batch_of([(range(num_rows), 0, range(num_rows))])
    else:
        batch = batch_of(
            [([row] * (p + 1), p, range(row, row + p + 1)) for row, p in enumerate(positions)]
        )
        batch = StepBatch(
            batch.token_ids,
            batch.positions,
            batch.row_starts,
            _distinct_last_slots(batch),
            batch.slot_starts,
            batch.logit_rows,
        )
    needed = max(512, int(batch.slot_ids.max()) + 1)
    subject = native(plan, Tensors(tensors), weights="f32", isa=isa, num_slots=needed, **options)
    rows: Float32Array = subject.run(batch)[:, :width].copy()
    return rows


def _distinct_last_slots(batch: StepBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Slot ids in which every row writes a slot of its own; what it sees does not matter."""
    slots = np.zeros_like(batch.slot_ids)
    slots[batch.slot_starts[1:] - 1] = np.arange(batch.num_rows)
    return slots
