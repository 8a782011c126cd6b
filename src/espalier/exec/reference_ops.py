"""Operations of a Plan on one row, in plain numpy float32: the oracle for every kernel.

Each function maps the arrays of one token to new arrays. It knows no batch, no pool and no Plan, so
that what a row gives can depend on that row only.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from espalier.exec.executor import Float32Array
from espalier.exec.plan import Activation, Rope, RopeStyle

_GELU_SCALE = np.float32(math.sqrt(2 / math.pi))


Rounding = Callable[[Float32Array], Float32Array]


def rms_norm(x: Float32Array, weight: Float32Array, eps: float) -> Float32Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (`x`: `[..., width]`)."""
    mean_square = np.mean(x * x, axis=-1, keepdims=True)
    out: Float32Array = x / np.sqrt(mean_square + np.float32(eps)) * weight
    return out


def linear(x: Float32Array, weight: Float32Array, bias: Float32Array | None) -> Float32Array:
    """weight @ x + bias for one row, `[out_features]`."""
    out: Float32Array = weight @ x
    if bias is not None:
        np.add(out, bias, out=out)
    return out


def rotate(heads: Float32Array, position: int, rope: Rope) -> Float32Array:
    """Rotates each head (`[heads, head_dim]`) by the angles of a position, computed in float64."""
    angles = position * np.asarray(rope.inv_freq, dtype=np.float64)
    cos = (np.cos(angles) * rope.attention_factor).astype(np.float32)
    sin = (np.sin(angles) * rope.attention_factor).astype(np.float32)
    half = len(angles)
    out: Float32Array = heads.copy()
    if rope.style is RopeStyle.HALF:
        first, second = slice(0, half), slice(half, 2 * half)
    else:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    out[:, first] = heads[:, first] * cos - heads[:, second] * sin
    out[:, second] = heads[:, second] * cos + heads[:, first] * sin
    return out


def soft_capped(values: Float32Array, cap: float) -> Float32Array:
    """cap * tanh(values / cap); the values themselves where the cap is 0."""
    if cap == 0:
        return values
    out: Float32Array = np.float32(cap) * np.tanh(values / np.float32(cap))
    return out


def unrounded(x: Float32Array) -> Float32Array:
    """x as it is."""
    return x


def attention(
    q: Float32Array, keys: Float32Array, values: Float32Array, scale: float, soft_cap: float
) -> Float32Array:
    """Softmax attention of one row over all the keys that it sees.

    q is `[heads, head_dim]`, keys and values are `[context, kv_heads, head_dim]`; consecutive query
    heads share a key head. Returns `[heads, head_dim]`.
    """
    num_heads, num_kv_heads = q.shape[0], keys.shape[1]
    out = np.empty_like(q)
    for head in range(num_heads):
        kv_head = head * num_kv_heads // num_heads
        scores = (keys[:, kv_head] @ q[head]) * np.float32(scale)
        scores = soft_capped(scores, soft_cap)
        exponentials = np.exp(scores - scores.max())
        out[head] = (exponentials / exponentials.sum()) @ values[:, kv_head]
    return out


def activate(x: Float32Array, activation: Activation) -> Float32Array:
    """SiLU, or GELU in its tanh form."""
    out: Float32Array
    if activation is Activation.SILU:
        with np.errstate(over="ignore"):  # exp(-x) may be infinite, then the result is -0
            out = x / (np.float32(1) + np.exp(-x))
    else:
        inner = _GELU_SCALE * (x + np.float32(0.044715) * x * x * x)
        out = np.float32(0.5) * x * (np.float32(1) + np.tanh(inner))
    return out


def round_to_bf16(x: Float32Array) -> Float32Array:
    """The nearest bfloat16 (ties to even) of each element, as float32."""
    bits = x.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    out: Float32Array = (rounded & np.uint32(0xFFFF0000)).view(np.float32)
    return out


def round_to_int8(x: Float32Array) -> Float32Array:
    """The nearest of 255 evenly spaced values, by the largest magnitude of the last dimension."""
    scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    out: Float32Array = np.rint(x / np.where(scale == 0, np.float32(1), scale)) * scale
    return out
