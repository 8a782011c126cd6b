"""Attention as the native kernels define it, in numpy: one query, one operation at a time.

The oracle of tests/exec/test_attention.py, bit for bit. See docs/decisions.md for the order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from espalier.exec.executor import Float32Array
from espalier.exec.reference_ops import round_to_bf16

BLOCK, SEGMENT, CHAIN = 64, 512, 32
f32 = np.float32
SMALLEST = f32(2.0**-126)


def flushed(x: Float32Array) -> Float32Array:
    """Zero for subnormal numbers."""
    out: Float32Array = np.where(np.abs(x) < SMALLEST, f32(0) * x, x).astype(np.float32)
    return out


def fma(x: Float32Array, y: Float32Array, z: Float32Array) -> Float32Array:
    """x * y + z, rounded once: the sum is rounded to odd in float64 first."""
    product = x.astype(np.float64) * y.astype(np.float64)  # exact
    addend = np.broadcast_to(np.asarray(z, np.float64), product.shape)
    total = np.asarray(product + addend)
    if not np.isfinite(total).all():
        finite = np.isfinite(total)
        total[finite] = fma(x[finite], y[finite], addend[finite].astype(np.float32))
        return total.astype(np.float32)
    moved = total - product
    error = (product - (total - moved)) + (addend - moved)
    is_even = total.view(np.int64) & 1 == 0
    away = np.where((error > 0) == (total > 0), 1, -1)
    bits = total.view(np.int64) + np.where((error != 0) & is_even & (total != 0), away, 0)
    return flushed(bits.view(np.float64).astype(np.float32))


def add_products(total: Float32Array, x: Float32Array, y: Float32Array) -> Float32Array:
    """total + sum over the first axis of x * y as TDPBF16PS adds it: chains of 32 products."""
    for first in range(0, len(x), CHAIN):
        chains = []
        for start in (first, first + 1):
            chain = np.zeros_like(total)
            for k in range(start, min(first + CHAIN, len(x)), 2):
                chain = fma(x[k], y[k], chain)
            chains.append(chain)
        total = flushed(total + flushed(chains[0] + chains[1]))
    return total


def short_exp2(t: Float32Array) -> Float32Array:
    """The kernels' power of 2, a polynomial of degree 3."""
    t = np.maximum(t, f32(-127))
    whole = np.rint(t)
    rest = (t - whole).astype(np.float32)
    series = fma(np.full_like(rest, 0.055008918046951294), rest, f32(0.2422109693288803))
    series = fma(series, rest, f32(0.6932829022407532))
    series = fma(series, rest, f32(1))
    return flushed(np.ldexp(series, whole.astype(np.int64)).astype(np.float32))


@dataclass(frozen=True)
class Stored:
    """Keys or values as the pool holds them: numbers of bfloat16, and a scale for each position."""

    rows: Float32Array  # [positions, head_dim]
    scales: Float32Array | None  # [positions]


def store(x: Float32Array, kv_dtype: str) -> Stored:
    """What the pool keeps of x `[positions, head_dim]`."""
    if kv_dtype == "bf16":
        return Stored(flushed(round_to_bf16(x)), None)
    largest = np.abs(x).max(-1)
    scale = np.where(largest < 1e-30, f32(0), largest / f32(127))
    inverse = np.where(largest < 1e-30, f32(0), f32(127) / np.maximum(largest, f32(1e-30)))
    return Stored(np.rint(x * inverse[:, None]).astype(np.float32), scale.astype(np.float32))


def attend(
    q: Float32Array, keys: Stored, values: Stored, *, scale: float, window: int = 0
) -> Float32Array:
    """Output `[head_dim]` of one query that stands at the last position of keys and values."""
    length = len(keys.rows)
    first_seen = max(0, length - window) if window else 0
    natural = np.abs(f32(scale))
    power = f32(natural * f32(1.44269504))
    slack = f32(f32(8) / power)
    query = flushed(round_to_bf16(flushed(q * f32(-1 if scale < 0 else 1))))
    total: tuple[Float32Array, np.float32, np.float32] | None = None
    for segment in range(first_seen // SEGMENT, (length - 1) // SEGMENT + 1):
        sums, weight_sum, top = np.zeros_like(q), f32(0), f32(-np.inf)
        for block in range(segment * SEGMENT, min((segment + 1) * SEGMENT, length), BLOCK):
            seen = np.arange(max(block, first_seen), min(block + BLOCK, length))
            if len(seen) == 0:
                continue
            # Products with positions that are not seen are products with 0.
            padded = np.arange(block, block + BLOCK)
            is_seen = (padded >= seen[0]) & (padded <= seen[-1])
            rows = np.where(is_seen[:, None], keys.rows[np.minimum(padded, length - 1)], f32(0))
            scores = add_products(
                np.zeros(BLOCK, np.float32), np.repeat(query[:, None], BLOCK, 1), rows.T
            )
            if keys.scales is not None:
                scores = flushed(scores * keys.scales[np.minimum(padded, length - 1)])
            scores = np.where(is_seen, scores, f32(-np.inf)).astype(np.float32)
            new_top = scores.max() if top + slack < scores.max() else top
            p = short_exp2((scores - new_top) * power)
            kept = f32(1)
            if new_top != top:
                kept = short_exp2(np.array([(top - new_top) * power]))[0]
            top = new_top
            rounded = flushed(round_to_bf16(flushed(p)))
            weights = rounded
            if values.scales is not None:
                scaled = flushed(p * values.scales[np.minimum(padded, length - 1)])
                weights = flushed(round_to_bf16(scaled))
            v = np.where(is_seen[:, None], values.rows[np.minimum(padded, length - 1)], f32(0))
            sums = add_products(
                flushed(sums * kept), np.repeat(weights[:, None], len(q), 1), v.astype(np.float32)
            )
            one = add_products(
                np.array([flushed(weight_sum * kept)]), rounded[:, None], np.ones((BLOCK, 1), f32)
            )
            weight_sum = one[0]
        total = _folded(total, (sums, weight_sum, top), natural)
    assert total is not None
    out: Float32Array = total[0] * f32(f32(1) / total[1])
    return out


Partial = tuple[Float32Array, np.float32, np.float32]


def _folded(total: Partial | None, new: Partial, natural: np.float32) -> Partial:
    if total is None:
        return new
    top = max(total[2], new[2])
    kept, added = (f32(kernel_exp(f32((part[2] - top) * natural))) for part in (total, new))
    return total[0] * kept + new[0] * added, f32(total[1] * kept + new[1] * added), top


def kernel_exp(x: np.float32) -> float:
    """e^x as native/vector_math.h computes it, operation by operation."""
    if x < f32(-87.3):
        return 0.0
    values = np.array([x], np.float32)
    magic = f32(12582912.0)
    shifted = fma(values, np.array([f32(1.44269504)]), magic)
    n = shifted - magic
    r = fma(n, np.array([f32(2.12194440e-4)]), fma(n, np.array([f32(-0.693359375)]), values))
    series = np.array([f32(1 / 5040)])
    for coefficient in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2):
        series = fma(series, r, f32(coefficient))
    fraction = fma(r * r, series, r)
    power = np.ldexp(f32(1), int(n[0])).astype(np.float32)
    return float(fma(np.array([power]), fraction, power)[0])
