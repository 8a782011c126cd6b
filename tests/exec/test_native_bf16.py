"""bfloat16 products against a numpy twin that sums in the order of AMX: the same bits on all."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exec.head_product import fused, head_logits, head_plan
from tests.exec.tiny_plans import ISAS, Tensors, native

from espalier.exec.executor import Float32Array

STEP = 32


def rounded(x: Float32Array) -> Float32Array:
    """The nearest bfloat16, ties to even; subnormal numbers become zero."""
    bits = x.view(np.uint32)
    nearest = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32)
    return np.where(np.abs(x) < 2.0**-126, np.float32(0), nearest)


def twin(x: Float32Array, weight: Float32Array) -> Float32Array:
    """x @ weight.T: two chains for each 32 inputs, their sum, then the sum of these."""
    padding = ((0, 0), (0, -x.shape[1] % STEP))
    rows, columns = np.pad(rounded(x), padding), np.pad(rounded(weight), padding)
    total = np.zeros((len(x), len(weight)), np.float32)
    for first in range(0, rows.shape[1], STEP):
        chains = []
        for parity in (0, 1):
            chain = np.zeros_like(total)
            for k in range(first + parity, first + STEP, 2):
                chain = fused(rows[:, k, None], columns[None, :, k], chain)
            chains.append(chain)
        total = total + (chains[0] + chains[1])
    return total


def logits_of(
    table: Float32Array, head: Float32Array, rows: int, **options: object
) -> Float32Array:
    return head_logits(Tensors({"table": table, "head": head}), head.shape, rows, "bf16", **options)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(1, 40),
    width=st.integers(1, 150),
    spread=st.floats(0.0, 6.0),
)
def test_product_equals_the_twin(seed: int, rows: int, width: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    table, head = (
        (random.normal(0, 1, (50, width)) * 10 ** random.uniform(-spread, spread, (50, 1))).astype(
            np.float32
        )
        for _ in range(2)
    )
    table[0] = 0
    table[1, 0] = 1e-39
    want = twin(table[:rows], head)
    for isa in ISAS:
        got = logits_of(table, head, rows, isa=isa, num_threads=2)
        np.testing.assert_array_equal(got, want, err_msg=isa)


def test_a_row_does_not_depend_on_the_rows_beside_it() -> None:
    random = np.random.default_rng(5)
    table, head = (random.normal(0, 1, (600, 130)).astype(np.float32) for _ in range(2))
    for isa in ISAS[1:]:
        whole = logits_of(table, head, 600, num_slots=600, max_rows=600, isa=isa)
        for rows in (1, 2, 3, 4, 5, 15, 16, 17, 31, 33):
            np.testing.assert_array_equal(logits_of(table, head, rows, isa=isa), whole[:rows])


def test_a_weight_takes_two_bytes() -> None:
    tensors = Tensors({name: np.ones((64, 96), np.float32) for name in ("table", "head")})
    executor = native(head_plan(64, 96), tensors, weights="bf16")
    assert executor.memory_bytes()["weights"] == 64 * 96 * 2
