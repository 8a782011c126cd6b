"""int8 products against a numpy twin in exact integers: the same bits, for any rows and machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.exec.head_product import GROUP, TINY, fused, head_logits, head_plan, quantized_row
from tests.exec.tiny_plans import ISAS, Tensors, batch_of, native

from espalier import _native
from espalier.errors import ModelFileError
from espalier.exec import plan as ops
from espalier.exec.executor import ExecutorOptions, Float32Array, RawTensor, TensorType
from espalier.exec.native import NativeExecutor
from espalier.exec.plan import Buffer, Geometry, Plan, WeightSlot

f32 = np.float32


def quantized_weights(weight: Float32Array) -> tuple[NDArray[np.int64], Float32Array]:
    """int8 [out, groups, 64] and scales [out, groups]: symmetric, largest magnitude / 127."""
    padding = -weight.shape[1] % GROUP
    groups = np.pad(weight, ((0, 0), (0, padding))).reshape(len(weight), -1, GROUP)
    largest = np.abs(groups).max(-1)
    is_zero = largest < TINY
    inverse = f32(127) / np.where(is_zero, f32(1), largest)
    whole = np.rint(groups * inverse[..., None]).astype(np.int64)
    return np.where(is_zero[..., None], 0, whole), np.where(is_zero, f32(0), largest / f32(127))


def twin(x: Float32Array, weight: Float32Array, bias: Float32Array | None = None) -> Float32Array:
    """x @ weight.T + bias as the executor defines it for int8 weights, row by row."""
    whole, scales = quantized_weights(weight)
    out = np.empty((len(x), len(weight)), np.float32)
    for row, result in zip(x, out, strict=True):
        integers, row_scale = quantized_row(row)
        sums = (whole * integers).sum(-1)  # [out, groups], exact
        assert np.abs(sums).max() < 2**31
        total = np.zeros(len(weight), np.float32)
        for group in range(sums.shape[1]):
            total = fused(sums[:, group].astype(np.float32), scales[:, group], total)
        result[:] = total * row_scale
        if bias is not None:
            result[:] = result + bias
    return out


def logits_of(
    table: Float32Array, head: Float32Array, rows: int, **options: object
) -> Float32Array:
    return head_logits(Tensors({"table": table, "head": head}), head.shape, rows, "int8", **options)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(1, 40),
    width=st.integers(1, 300),
    vocab=st.integers(40, 90),
    spread=st.floats(0.0, 8.0),
)
def test_product_equals_integer_twin(
    seed: int, rows: int, width: int, vocab: int, spread: float
) -> None:
    random = np.random.default_rng(seed)
    table, head = (
        (
            random.normal(0, 1, (vocab, width)) * 10 ** random.uniform(-spread, spread, (vocab, 1))
        ).astype(np.float32)
        for _ in range(2)
    )
    table[0] = 0
    head[:, : width // 2 : 3] = 0
    want = twin(table[:rows], head)
    for isa in ISAS:
        got = logits_of(table, head, rows, isa=isa, num_threads=2)
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32), err_msg=isa)


def test_largest_values_do_not_overflow() -> None:
    table = np.full((40, 4 * GROUP), 3.0, np.float32)
    head = np.full((40, 4 * GROUP), -2.0, np.float32)
    for isa in ISAS:
        got = logits_of(table, head, 40, isa=isa)
        np.testing.assert_array_equal(got, twin(table, head))
        np.testing.assert_allclose(got, -6.0 * 4 * GROUP, rtol=1e-6)


def test_row_does_not_depend_on_rows_beside_it() -> None:
    random = np.random.default_rng(5)
    table, head = (random.normal(0, 1, (300, 130)).astype(np.float32) for _ in range(2))
    whole = logits_of(table, head, 300, num_threads=3, max_rows=300)
    for rows in range(1, 30):
        np.testing.assert_array_equal(logits_of(table, head, rows), whole[:rows])


def test_bias_is_added_after_the_scale() -> None:
    random = np.random.default_rng(6)
    vocab, width, outputs = 50, 70, 33
    values = {
        "table": random.normal(0, 1, (vocab, width)).astype(np.float32),
        "w": random.normal(0, 1, (outputs, width)).astype(np.float32),
        "b": random.normal(0, 1, outputs).astype(np.float32),
        "head": random.normal(0, 1, (vocab, outputs)).astype(np.float32),
    }
    plan = Plan(
        "bias",
        Geometry(0, width, 1, 1, 1, vocab, 64),
        (Buffer("x", width), Buffer("y", outputs), Buffer("z", outputs)),
        tuple(WeightSlot(name, value.shape, name) for name, value in values.items()),
        (),
        (
            ops.Embed("table", "x"),
            ops.Linear("x", "w", "y", bias="b"),
            ops.SelectRows("y", "z"),
            ops.LmHead("z", "head"),
        ),
    )
    want = twin(twin(values["table"][:9], values["w"], values["b"]), values["head"])
    for isa in ISAS:
        executor = native(plan, Tensors(values), weights="int8", isa=isa)
        got = executor.run(batch_of([(range(9), 0, range(9))]))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_row_that_is_not_finite_gives_nan_and_leaves_others_alone(poison: float) -> None:
    random = np.random.default_rng(7)
    table, head = (random.normal(0, 1, (40, 100)).astype(np.float32) for _ in range(2))
    clean = logits_of(table, head, 4)
    table[2, 60] = poison
    for isa in ISAS:
        got = logits_of(table, head, 4, isa=isa)
        assert np.isnan(got[2]).all()
        np.testing.assert_array_equal(got[[0, 1, 3]], clean[[0, 1, 3]])


@pytest.mark.parametrize("weights", ["int8", "f32"])
def test_weight_that_is_not_finite_is_refused(weights: str) -> None:
    head = np.ones((40, 100), np.float32)
    head[39, 99] = np.nan
    tensors = Tensors({"table": np.ones_like(head), "head": head})
    with pytest.raises(ModelFileError, match="head holds an infinity or a NaN"):
        native(head_plan(40, 100), tensors, weights=weights, num_threads=3)


class PackedTensors:
    """The table in one packed type (its bytes random, its scales sane); the head in float32."""

    def __init__(self, kind: TensorType, plan: Plan, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.plan = plan
        count = int(np.prod(plan.weights[0].shape))
        data = random.integers(0, 60, _native.packed_bytes(kind.value, count), dtype=np.uint8)
        self.raw = {"table": RawTensor("table", kind, plan.weights[0].shape, data)}
        head = random.normal(0, 1, plan.weights[1].shape).astype(np.float32)
        self.raw["head"] = Tensors({"head": head}).tensor("head")
        self.values = {
            name: _native.unpack(raw.type.value, raw.data, count).reshape(raw.shape)
            for name, raw in self.raw.items()
        }

    def tensor(self, name: str) -> RawTensor:
        return self.raw[name]


@pytest.mark.parametrize("kind", list(TensorType))
def test_every_tensor_type_is_looked_up_and_packed(kind: TensorType) -> None:
    plan = head_plan(32, 512)
    source = PackedTensors(kind, plan, seed=3)
    batch = batch_of([(range(32), 0, range(32))])
    assert np.isfinite(source.values["table"]).all()
    looked_up = NativeExecutor(plan, source, ExecutorOptions(32, weights="int8", num_threads=1))
    want = twin(source.values["table"], source.values["head"])
    np.testing.assert_array_equal(looked_up.run(batch), want)
    source.raw["table"], source.raw["head"] = source.raw["head"], source.raw["table"]
    packed = NativeExecutor(plan, source, ExecutorOptions(32, weights="int8", num_threads=1))
    want = twin(source.values["head"], source.values["table"])
    np.testing.assert_array_equal(packed.run(batch), want)
