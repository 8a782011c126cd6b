"""One product, of looked-up rows with an LM head, and the arithmetic that its numpy twins share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.exec.tiny_plans import batch_of, native

from espalier.exec import plan as ops
from espalier.exec.executor import Float32Array, WeightSource
from espalier.exec.plan import Buffer, Geometry, Plan, WeightSlot

GROUP = 64
TINY = np.float32(1e-30)
f32 = np.float32


def quantized_row(x: Float32Array) -> tuple[NDArray[np.int64], np.float32]:
    """15-bit integers [groups, 64] and the row's scale."""
    groups = np.pad(x, (0, -len(x) % GROUP)).reshape(-1, GROUP)
    largest = np.abs(x).max()
    if largest < TINY:
        return np.zeros(groups.shape, np.int64), f32(0)
    return np.rint(groups * (f32(16383) / largest)).astype(np.int64), largest / f32(16383)


def fused(x: Float32Array, y: Float32Array, z: Float32Array) -> Float32Array:
    """x * y + z, rounded once: the product is exact in float64, the sum has 11 bits to spare."""
    exact = x.astype(np.longdouble) * y.astype(np.longdouble) + z.astype(np.longdouble)
    return exact.astype(np.float32)


def head_plan(vocab: int, width: int) -> Plan:
    """Logits are one product with the head; token i is row i of the table."""
    return Plan(
        "head",
        Geometry(0, width, 1, 1, 1, vocab, 4096),
        (Buffer("x", width), Buffer("y", width)),
        (WeightSlot("table", (vocab, width), "table"), WeightSlot("head", (vocab, width), "head")),
        (),
        (ops.Embed("table", "x"), ops.SelectRows("x", "y"), ops.LmHead("y", "head")),
    )


def head_logits(
    weights: WeightSource, shape: tuple[int, ...], rows: int, form: str, **options: object
) -> Float32Array:
    """Logits of the first rows of `table` with `head`, [rows, shape[0]], weights held as `form`."""
    executor = native(head_plan(shape[0], shape[1]), weights, weights=form, **options)
    logits: Float32Array = executor.run(batch_of([(range(rows), 0, range(rows))])).copy()
    return logits
