"""The reference executor against a dense computation of a whole sequence, and its invariances."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from espalier.errors import EngineClosedError, UnsupportedError
from espalier.exec import plan as ops
from espalier.exec.executor import ExecutorOptions, Float32Array, RawTensor, StepBatch, TensorType
from espalier.exec.plan import Activation, Buffer, Geometry, Plan, Rope, RopeStyle, WeightSlot
from espalier.exec.reference import ReferenceExecutor
from espalier.exec.reference_ops import activate, round_to_bf16

Dense = NDArray[np.float64]

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCAB = 24, 4, 2, 8, 40, 53
WINDOW, SOFT_CAP, LOGIT_CAP, EPS = 3, 5.0, 30.0, 1e-5
SHAPES = {
    "table": (VOCAB, HIDDEN),
    "norm": (HIDDEN,),
    "q": (HEADS * HEAD_DIM, HIDDEN),
    "q_bias": (HEADS * HEAD_DIM,),
    "k": (KV_HEADS * HEAD_DIM, HIDDEN),
    "v": (KV_HEADS * HEAD_DIM, HIDDEN),
    "q_norm": (HEAD_DIM,),
    "o": (HIDDEN, HEADS * HEAD_DIM),
    "gate": (MLP, HIDDEN),
    "up": (MLP, HIDDEN),
    "down": (HIDDEN, MLP),
}


class Tensors:
    """Seeded random tensors by name."""

    def __init__(self, seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.values = {
            name: random.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()
        }

    def tensor(self, name: str) -> RawTensor:
        values = self.values[name]
        return RawTensor(name, TensorType.F32, values.shape, values.reshape(-1).view(np.uint8))


def layer_ops(layer: int, rope: str, window: int) -> tuple[ops.Op, ...]:
    return (
        ops.RmsNorm("x", "norm", "h", EPS),
        ops.Linear("h", "q", "q", bias="q_bias"),
        ops.Linear("h", "k", "k"),
        ops.Linear("h", "v", "v"),
        ops.HeadNorm("q", "q_norm", HEAD_DIM, EPS),
        ops.ApplyRope("q", HEAD_DIM, rope),
        ops.ApplyRope("k", HEAD_DIM, rope),
        ops.KvWrite(layer, "k", "v"),
        ops.Attention(layer, "q", "a", 0.3, window=window, soft_cap=SOFT_CAP if window else 0.0),
        ops.Linear("a", "o", "h"),
        ops.Add("x", "h", "x"),
        ops.RmsNorm("x", "norm", "h", EPS),
        ops.Linear("h", "gate", "gate"),
        ops.Linear("h", "up", "up"),
        ops.GatedActivation("gate", "up", "gate", Activation.GELU_TANH),
        ops.Linear("gate", "down", "h"),
        ops.Add("x", "h", "x"),
    )


def small_plan() -> Plan:
    """Two layers with every operation: a window and a cap in the second, two rotary styles."""
    inv_freq = tuple(10.0**-i for i in range(HEAD_DIM // 2))
    return Plan(
        name="small",
        geometry=Geometry(2, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, VOCAB, 64),
        buffers=(
            Buffer("x", HIDDEN),
            Buffer("h", HIDDEN),
            Buffer("q", HEADS * HEAD_DIM),
            Buffer("k", KV_HEADS * HEAD_DIM),
            Buffer("v", KV_HEADS * HEAD_DIM),
            Buffer("a", HEADS * HEAD_DIM),
            Buffer("gate", MLP),
            Buffer("up", MLP),
        ),
        weights=tuple(
            WeightSlot(name, shape, name, offset=1.0 if name == "norm" else 0.0)
            for name, shape in SHAPES.items()
        ),
        ropes=(
            Rope("half", inv_freq, RopeStyle.HALF),
            Rope("partial", inv_freq[:2], RopeStyle.INTERLEAVED, attention_factor=1.25),
        ),
        ops=(
            ops.Embed("table", "x", 1.5),
            *layer_ops(0, "half", 0),
            *layer_ops(1, "partial", WINDOW),
            ops.RmsNorm("x", "norm", "x", EPS),
            ops.SelectRows("x", "h"),
            ops.LmHead("h", "table", LOGIT_CAP),
        ),
    )


def dense_norm(x: Dense, weight: Dense) -> Dense:
    out: Dense = x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * weight
    return out


def dense_rope(x: Dense, heads: int, style: RopeStyle) -> Dense:
    """Rotates by multiplication of complex numbers."""
    x = x.reshape(len(x), heads, HEAD_DIM).copy()
    pairs = HEAD_DIM // 2 if style is RopeStyle.HALF else 2
    turn = np.exp(1j * np.outer(np.arange(len(x)), 10.0 ** -np.arange(pairs)))[:, None, :]
    if style is RopeStyle.HALF:
        z = (x[..., :pairs] + 1j * x[..., pairs:]) * turn
        x[..., :pairs], x[..., pairs:] = z.real, z.imag
    else:
        z = (x[..., 0:4:2] + 1j * x[..., 1:4:2]) * turn * 1.25
        x[..., 0:4:2], x[..., 1:4:2] = z.real, z.imag
    return x


def dense_logits(tensors: dict[str, Float32Array], token_ids: Sequence[int]) -> Dense:
    """The same model over a whole sequence with masks, in float64."""
    w = {name: values.astype(np.float64) for name, values in tensors.items()}
    length = len(token_ids)
    x = w["table"][list(token_ids)] * 1.5
    for style, window in ((RopeStyle.HALF, length), (RopeStyle.INTERLEAVED, WINDOW)):
        h = dense_norm(x, w["norm"] + 1)
        q = dense_norm((h @ w["q"].T + w["q_bias"]).reshape(length, HEADS, -1), w["q_norm"])
        q = dense_rope(q, HEADS, style)
        k = dense_rope(h @ w["k"].T, KV_HEADS, style).repeat(HEADS // KV_HEADS, axis=1)
        v = (h @ w["v"].T).reshape(length, KV_HEADS, -1).repeat(HEADS // KV_HEADS, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) * 0.3
        if style is RopeStyle.INTERLEAVED:
            scores = SOFT_CAP * np.tanh(scores / SOFT_CAP)
        distance = np.arange(length)[:, None] - np.arange(length)
        scores = np.where((distance >= 0) & (distance < window), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", weights, v).reshape(length, -1) @ w["o"].T
        h = dense_norm(x, w["norm"] + 1)
        gate = h @ w["gate"].T
        gelu = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)))
        x = x + (gelu * (h @ w["up"].T)) @ w["down"].T
    x = dense_norm(x, w["norm"] + 1)
    logits: Dense = LOGIT_CAP * np.tanh(x @ w["table"].T / LOGIT_CAP)
    return logits


def batch_of(parts: Sequence[tuple[Sequence[int], int, Sequence[int]]]) -> StepBatch:
    """A step of (tokens of the sequence so far, position of the first row, slots) per sequence."""
    positions = [np.arange(first, len(tokens)) for tokens, first, _ in parts]
    starts = np.cumsum([0] + [len(rows) for rows in positions])
    as_int32 = np.int32
    return StepBatch(
        token_ids=np.concatenate([tokens[first:] for tokens, first, _ in parts]).astype(as_int32),
        positions=np.concatenate(positions).astype(as_int32),
        row_starts=starts.astype(as_int32),
        slot_ids=np.concatenate([slots[: len(tokens)] for tokens, _, slots in parts]).astype(
            as_int32
        ),
        slot_starts=np.cumsum([0] + [len(tokens) for tokens, _, _ in parts]).astype(as_int32),
        logit_rows=np.arange(starts[-1], dtype=as_int32),
    )


def executor(**options: object) -> ReferenceExecutor:
    return ReferenceExecutor(
        small_plan(),
        Tensors(),
        ExecutorOptions(num_slots=64, **options),  # type: ignore[arg-type]
    )


TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, VOCAB, 11)]


def test_run_equals_dense_computation() -> None:
    got = executor().run(batch_of([(TOKENS, 0, range(11))]))
    want = dense_logits(Tensors().values, TOKENS)
    assert 10 < np.abs(want).max() < 29.9  # the cap matters and does not hide the rest
    np.testing.assert_allclose(got, want, atol=2e-5)


def test_run_with_bf16_pool_is_near_and_not_equal() -> None:
    got = executor(kv_dtype="bf16").run(batch_of([(TOKENS, 0, range(11))]))
    error = np.abs(got - dense_logits(Tensors().values, TOKENS)).max()
    assert 1e-4 < error < 5e-2


@settings(max_examples=20, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 10), max_size=4),
    order=st.permutations(range(40)),
    stranger=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9),
    comes_first=st.booleans(),
)
def test_logits_do_not_depend_on_chunks_slots_or_strangers(
    cuts: list[int], order: list[int], stranger: list[int], comes_first: bool
) -> None:
    subject = executor()
    want = subject.run(batch_of([(TOKENS, 0, range(50, 61))])).copy()
    rows = []
    borders = sorted({0, 11, *cuts})
    for first, last in pairwise(borders):
        parts = [(TOKENS[:last], first, order[:11]), (stranger, 0, order[11:])]
        if comes_first:
            parts.reverse()
        logits = subject.run(batch_of(parts))
        rows.append(logits[len(stranger) :] if comes_first else logits[: last - first])
    np.testing.assert_array_equal(np.concatenate(rows), want)


def test_run_returns_only_the_rows_that_were_asked_for() -> None:
    batch = batch_of([(TOKENS, 0, range(11))])
    whole = executor().run(batch).copy()
    some = StepBatch(
        batch.token_ids,
        batch.positions,
        batch.row_starts,
        batch.slot_ids,
        batch.slot_starts,
        np.array([2, 10], dtype=np.int32),
    )
    np.testing.assert_array_equal(executor().run(some), whole[[2, 10]])


def test_memory_bytes_counts_weights_and_pool() -> None:
    held = executor().memory_bytes()
    assert held["weights"] == 4 * sum(int(np.prod(shape)) for shape in SHAPES.values())
    assert held["kv_pool"] == 2 * 2 * 64 * KV_HEADS * HEAD_DIM * 4


def test_run_raises_after_close() -> None:
    subject = executor()
    subject.close()
    subject.close()
    with pytest.raises(EngineClosedError):
        subject.run(batch_of([(TOKENS, 0, range(11))]))


def test_options_that_are_not_honoured_raise() -> None:
    with pytest.raises(UnsupportedError, match="int8"):
        executor(weights="int8")
    with pytest.raises(UnsupportedError, match="int4"):
        executor(kv_dtype="int4")


def test_silu_of_large_negative_is_zero() -> None:
    values = activate(np.array([-1e4, 0, 1e4], dtype=np.float32), Activation.SILU)
    np.testing.assert_array_equal(values, [0, 0, 1e4])


def test_round_to_bf16_takes_nearest_and_even() -> None:
    bits = np.array([0x3F800000, 0x3F808000, 0x3F818000, 0x3F808001, 0xBF80FFFF], dtype=np.uint32)
    want = np.array([0x3F800000, 0x3F800000, 0x3F820000, 0x3F810000, 0xBF810000], dtype=np.uint32)
    np.testing.assert_array_equal(round_to_bf16(bits.view(np.float32)).view(np.uint32), want)
