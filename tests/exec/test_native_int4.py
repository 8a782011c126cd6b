"""int4 products: the integers that 4-bit tensors stand for, and the bits of the int8 kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.exec.head_product import fused, head_logits, head_plan, quantized_row
from tests.exec.tiny_plans import ISAS, Tensors, batch_of, llama_like, native, random_tensors

from espalier.errors import ModelFileError
from espalier.exec.executor import Float32Array, RawTensor, TensorType

f32 = np.float32


@dataclass(frozen=True)
class FourBit:
    """A 4-bit matrix: w = scale * q + minimum for 32 inputs each."""

    q: NDArray[np.int64]  # [out, in / 32, 32]
    scale: Float32Array  # [out, in / 32]
    minimum: Float32Array

    def values(self) -> Float32Array:
        whole = self.q.astype(np.float32)
        values = whole * self.scale[..., None] + self.minimum[..., None]
        return values.reshape(len(self.q), -1)

    def as_q4_1(self, name: str) -> RawTensor:
        """The bytes of a file: element i is in the low, element i + 16 in the high half."""
        nibbles = (self.q[..., :16] | self.q[..., 16:] << 4).astype(np.uint8)
        head = np.stack([self.scale, self.minimum], -1).astype(np.float16)
        blocks = np.concatenate([head.view(np.uint8), nibbles], -1)
        shape = (len(self.q), self.q.shape[1] * 32)
        return RawTensor(name, TensorType.Q4_1, shape, np.ascontiguousarray(blocks).reshape(-1))


def random_four_bit(random: np.random.Generator, rows: int, width: int) -> FourBit:
    shape = (rows, width // 32)
    scale = 10 ** random.uniform(-3, 0, shape)
    minimum = -scale * random.uniform(0, 15, shape)
    q = random.integers(0, 16, (*shape, 32))
    q[:, ::3] = q[:, ::3] // 8 + 7  # some groups use a small part of their range
    as_half = [x.astype(np.float16).astype(np.float32) for x in (scale, minimum)]
    return FourBit(q, as_half[0], as_half[1])


class Mixed:
    """A float table and a 4-bit head."""

    def __init__(self, table: Float32Array, head: RawTensor) -> None:
        self._table, self._head = Tensors({"table": table}), head

    def tensor(self, name: str) -> RawTensor:
        return self._head if name == "head" else self._table.tensor(name)


def group_size(width: int) -> int:
    steps = -(-width // 64)
    return 64 * (3 if steps % 3 == 0 else 2 if steps % 2 == 0 else 1)


def twin(x: Float32Array, weight: FourBit) -> Float32Array:
    """The product as int4 defines it, row by row: int8 integers from 8.8 bits, then floats."""
    rows, records, _ = weight.q.shape
    size = group_size(records * 32)
    padding = ((0, 0), (0, -records * 32 % size))
    values = np.pad(weight.values(), padding).reshape(rows, -1, size)
    largest = np.abs(values).max(-1)
    scales = largest / f32(127)
    inverse = np.repeat(f32(127) / largest, size // 32, axis=1)[:, :records].astype(np.float64)
    factor = np.rint(256 * weight.scale.astype(np.float64) * inverse)
    offset = np.rint(256 * weight.minimum.astype(np.float64) * inverse) + 128
    whole = (weight.q * factor[..., None] + offset[..., None]).astype(np.int64) >> 8
    assert np.abs(whole).max() <= 127
    groups = np.pad(whole.reshape(rows, -1), padding).reshape(rows, -1, size)
    out = np.empty((len(x), rows), np.float32)
    for row, result in zip(x, out, strict=True):
        integers, row_scale = quantized_row(row)
        flat = np.pad(integers.reshape(-1), (0, groups.shape[1] * size - integers.size))
        sums = (groups * flat.reshape(-1, size)).sum(-1)
        assert np.abs(sums).max() < 2**31
        total = np.zeros(rows, np.float32)
        for group in range(sums.shape[1]):
            total = fused(sums[:, group].astype(np.float32), scales[:, group], total)
        result[:] = total * row_scale
    return out


def logits_of(
    table: Float32Array, head: FourBit, rows: int, form: str = "auto", **options: object
) -> Float32Array:
    shape = (len(head.q), table.shape[1])
    return head_logits(Mixed(table, head.as_q4_1("head")), shape, rows, form, **options)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1 << 30), rows=st.integers(1, 40), groups=st.integers(1, 13))
def test_product_equals_the_integer_twin(seed: int, rows: int, groups: int) -> None:
    random = np.random.default_rng(seed)
    head = random_four_bit(random, 50, 32 * groups)
    table = random.normal(0, 1, (50, 32 * groups)).astype(np.float32)
    want = twin(table[:rows], head)
    for isa in ISAS:
        got = logits_of(table, head, rows, isa=isa, num_threads=2)
        np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32), err_msg=isa)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    random = np.random.default_rng(5)
    head = random_four_bit(random, 600, 576)
    table = random.normal(0, 1, (600, 576)).astype(np.float32)
    for isa in ISAS[1:]:
        whole = logits_of(table, head, 600, num_slots=600, max_rows=600, isa=isa)
        for rows in (1, 2, 3, 4, 5, 15, 16, 17, 31, 33):
            np.testing.assert_array_equal(logits_of(table, head, rows, isa=isa), whole[:rows])


def test_the_values_of_the_file_are_kept_within_a_part_of_a_step() -> None:
    random = np.random.default_rng(6)
    head = random_four_bit(random, 64, 192)
    table = np.eye(64, 192, dtype=np.float32)
    got = logits_of(table, head, 64)
    step = np.abs(head.values()).max(-1) / 127
    assert (np.abs(got.T - head.values()[:, :64]) <= 0.54 * step[:, None]).all()


def test_a_head_that_the_file_holds_in_floats_stays_int8() -> None:
    random = np.random.default_rng(7)
    head, table = (random.normal(0, 1, (90, 200)).astype(np.float32) for _ in range(2))
    plan = head_plan(90, 200)
    tensors = Tensors({"table": table, "head": head})
    batch = batch_of([(range(9), 0, range(9))])
    want = native(plan, tensors, weights="int8").run(batch).copy()
    np.testing.assert_array_equal(native(plan, tensors, weights="int4").run(batch), want)


def test_int4_makes_four_bits_of_floats() -> None:
    plan = llama_like()
    batch = batch_of([(range(9), 0, range(9))])
    results: dict[str, Float32Array] = {}
    sizes: dict[str, int] = {}
    for weights in ("f32", "int8", "int4"):
        executor = native(plan, random_tensors(plan, 0), weights=weights)
        results[weights] = executor.run(batch).copy()
        sizes[weights] = executor.memory_bytes()["weights"]
    want, got = results["f32"], results["int4"]
    norms = np.linalg.norm(want, axis=-1) * np.linalg.norm(got, axis=-1)
    assert ((want * got).sum(-1) / norms).min() > 0.9
    assert sizes["int4"] < sizes["int8"] < sizes["f32"]


def test_a_weight_takes_five_bits_and_its_share_of_a_scale() -> None:
    random = np.random.default_rng(8)
    width, vocab = 576, 64
    head = random_four_bit(random, vocab, width)
    table = np.zeros((vocab, width), np.float32)
    executor = native(head_plan(vocab, width), Mixed(table, head.as_q4_1("head")))
    assert executor.memory_bytes()["weights"] == vocab * (width * 5 // 8 + width // 192 * 4)


@pytest.mark.parametrize("form", ["auto", "int4"])
def test_a_file_with_an_infinite_scale_is_refused(form: str) -> None:
    head = random_four_bit(np.random.default_rng(9), 40, 64)
    head.scale[7, 1] = np.inf
    with pytest.raises(ModelFileError, match="head holds an infinity or a NaN"):
        logits_of(np.zeros((40, 64), np.float32), head, 1, form)
