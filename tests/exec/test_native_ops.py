"""Each operation of the native executor alone, against numpy in float64, on every machine path."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.exec.tiny_plans import EPS, ISAS, Tensors, batch_of, native, run_op

from espalier.exec import plan as ops
from espalier.exec.executor import Float32Array
from espalier.exec.plan import (
    Activation,
    Buffer,
    Geometry,
    Plan,
    Rope,
    RopeStyle,
    WeightSlot,
)

Dense = NDArray[np.float64]
seeds = st.integers(0, 1 << 30)
FEW = settings(max_examples=15, deadline=None)


def rows_of(seed: int, *shape: int) -> Float32Array:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(np.float32)


def on_every_isa(run: Callable[[str], Float32Array]) -> Float32Array:
    """The result, after checking that every instruction set gives the same bits."""
    results = [run(isa) for isa in ISAS]
    for other in results[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), results[0].view(np.uint32))
    return results[0]


def assert_near(got: Float32Array, want: Dense, ulps: float = 4) -> None:
    """Within some units in the last place of float32, relative to the largest value of the row."""
    scale = np.maximum(np.abs(want).max(axis=-1, keepdims=True), 1e-30)
    assert np.abs(got - want).max(initial=0, where=np.isfinite(want)) < np.inf
    assert (np.abs(got - want) / scale).max() < ulps * 2.0**-23


@FEW
@given(seeds, st.integers(1, 5), st.integers(1, 70))
def test_embed_is_exact(seed: int, rows: int, width: int) -> None:
    x = rows_of(seed, rows, width)
    got = on_every_isa(lambda isa: run_op({"x": x}, [], ("x", width), isa=isa))
    np.testing.assert_array_equal(got, x)


@FEW
@given(seeds, st.integers(1, 5), st.integers(1, 200))
def test_rms_norm(seed: int, rows: int, width: int) -> None:
    x, weight = rows_of(seed, rows, width), rows_of(seed + 1, width)
    for out in ("out", "x"):
        operation = ops.RmsNorm("x", "w", out, EPS)
        got = on_every_isa(
            lambda isa, op=operation: run_op(  # type: ignore[misc]
                {"x": x}, [op], (op.out, width), weights={"w": weight}, isa=isa
            )
        )
        dense = x.astype(np.float64)
        want = dense / np.sqrt((dense**2).mean(-1, keepdims=True) + EPS) * weight
        assert_near(got, want)


@FEW
@given(seeds, st.integers(1, 4), st.integers(1, 40))
def test_head_norm(seed: int, heads: int, head_dim: int) -> None:
    x, weight = rows_of(seed, 3, heads * head_dim), rows_of(seed + 1, head_dim)
    got = on_every_isa(
        lambda isa: run_op(
            {"x": x},
            [ops.HeadNorm("x", "w", head_dim, EPS)],
            ("x", heads * head_dim),
            weights={"w": weight},
            isa=isa,
        )
    )
    dense = x.astype(np.float64).reshape(3, heads, head_dim)
    want = dense / np.sqrt((dense**2).mean(-1, keepdims=True) + EPS) * weight
    assert_near(got, want.reshape(3, -1))


@FEW
@given(seeds, st.integers(1, 20), st.integers(1, 150), st.integers(1, 70), st.booleans())
def test_f32_linear(seed: int, rows: int, inputs: int, outputs: int, has_bias: bool) -> None:
    x, weight, bias = (
        rows_of(seed, rows, inputs),
        rows_of(seed + 1, outputs, inputs),
        rows_of(seed + 2, outputs),
    )
    got = on_every_isa(
        lambda isa: run_op(
            {"x": x},
            [ops.Linear("x", "w", "y", bias="b" if has_bias else None)],
            ("y", outputs),
            weights={"w": weight, "b": bias},
            isa=isa,
            num_threads=2,
        )
    )
    want = x.astype(np.float64) @ weight.T.astype(np.float64) + (bias if has_bias else 0)
    bound = np.abs(x).astype(np.float64) @ np.abs(weight).T + np.abs(bias)
    assert (np.abs(got - want) <= bound * (inputs + 1) * 2.0**-24 + 1e-30).all()


@FEW
@given(seeds, st.integers(1, 3), st.integers(1, 40), st.integers(0, 9), st.sampled_from(RopeStyle))
def test_rope(seed: int, heads: int, pairs: int, unrotated: int, style: RopeStyle) -> None:
    head_dim = 2 * pairs + unrotated
    positions = [0, 1, 700]
    inv_freq = tuple(1000.0 ** (-i / pairs) for i in range(pairs))
    x = rows_of(seed, len(positions), heads * head_dim)
    got = on_every_isa(
        lambda isa: run_op(
            {"x": x},
            [ops.ApplyRope("x", head_dim, "r")],
            ("x", heads * head_dim),
            ropes=(Rope("r", inv_freq, style, attention_factor=1.5),),
            positions=positions,
            isa=isa,
        )
    )
    want = x.astype(np.float64).reshape(len(positions), heads, head_dim)
    turn = 1.5 * np.exp(1j * np.outer(positions, inv_freq))[:, None, :]
    first = slice(0, pairs) if style is RopeStyle.HALF else slice(0, 2 * pairs, 2)
    second = slice(pairs, 2 * pairs) if style is RopeStyle.HALF else slice(1, 2 * pairs, 2)
    z = (want[..., first] + 1j * want[..., second]) * turn
    want[..., first], want[..., second] = z.real, z.imag
    assert_near(got, want.reshape(got.shape))


def gelu(x: Dense) -> Dense:
    # 0.5 (1 + tanh y) = 1 / (1 + e^-2y), without the cancellation of the first form.
    with np.errstate(over="ignore"):
        y = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    out: Dense = x * np.exp(-np.logaddexp(0, -2 * y))
    return out


def silu(x: Dense) -> Dense:
    with np.errstate(over="ignore"):
        out: Dense = x / (1 + np.exp(-x))
    return out


@pytest.mark.parametrize(
    ("kind", "oracle"), [(Activation.SILU, silu), (Activation.GELU_TANH, gelu)]
)
def test_gated_activation_over_all_sizes(
    kind: Activation, oracle: Callable[[Dense], Dense]
) -> None:
    sizes = np.concatenate([10.0 ** np.arange(-30, 3), np.linspace(0, 12, 400), [87.5, 1e4, 1e30]])
    gate = np.concatenate([-sizes, sizes]).astype(np.float32)[None, :]
    up = rows_of(1, 1, gate.shape[1])
    operation = ops.GatedActivation("gate", "up", "out", kind)
    got = on_every_isa(
        lambda isa: run_op({"gate": gate, "up": up}, [operation], ("out", gate.shape[1]), isa=isa)
    )
    want = oracle(gate.astype(np.float64)) * up
    # What is far below any input that matters may be flushed to zero; gelu's exponent is a float.
    np.testing.assert_allclose(
        got, want, rtol=1e-5 if kind is Activation.GELU_TANH else 5e-7, atol=1e-34
    )


@FEW
@given(seeds, st.integers(1, 5), st.integers(1, 90))
def test_add(seed: int, rows: int, width: int) -> None:
    x, y = rows_of(seed, rows, width), rows_of(seed + 1, rows, width)
    got = on_every_isa(
        lambda isa: run_op({"x": x, "y": y}, [ops.Add("x", "y", "x")], ("x", width), isa=isa)
    )
    np.testing.assert_array_equal(got, x + y)


def dense_attention(
    q: Dense, k: Dense, v: Dense, *, scale: float, window: int, soft_cap: float
) -> Dense:
    """Causal attention of whole heads with masks: q [rows, heads, dim], k and v [rows, kv, dim]."""
    rows, heads, _ = q.shape
    k, v = (np.repeat(part, heads // part.shape[1], axis=1) for part in (k, v))
    scores = np.einsum("qhd,khd->hqk", q, k) * scale
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    distance = np.arange(rows)[:, None] - np.arange(rows)
    is_seen = (distance >= 0) & (distance < (window or rows))
    scores = np.where(is_seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    out: Dense = np.einsum("hqk,khd->qhd", weights / weights.sum(-1, keepdims=True), v)
    return out


@settings(max_examples=25, deadline=None)
@given(
    seed=seeds,
    rows=st.one_of(st.integers(1, 140), st.integers(500, 1100)),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 7),
    head_dim=st.integers(1, 70),
    window=st.one_of(st.just(0), st.integers(1, 200), st.integers(500, 600)),
    soft_cap=st.sampled_from([0.0, 0.0, 2.5]),
)
def test_attention(
    *,
    seed: int,
    rows: int,
    kv_heads: int,
    group: int,
    head_dim: int,
    window: int,
    soft_cap: float,
) -> None:
    heads = kv_heads * group
    if rows > 200:
        kv_heads, group, heads, head_dim = 1, 2, 2, min(head_dim, 20)
    q = rows_of(seed, rows, heads * head_dim)
    k, v = (rows_of(seed + i, rows, kv_heads * head_dim) for i in (1, 2))
    scale = head_dim**-0.5
    operations: list[ops.Op] = [
        ops.KvWrite(0, "k", "v"),
        ops.Attention(0, "q", "out", scale, window=window, soft_cap=soft_cap),
    ]
    isas = ISAS if rows < 50 else ISAS[-1:]
    results = [
        run_op(
            {"q": q, "k": k, "v": v},
            operations,
            ("out", heads * head_dim),
            geometry=Geometry(1, 1, heads, kv_heads, head_dim, 1, 1),
            isa=isa,
        )
        for isa in isas
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), results[0].view(np.uint32))
    want = dense_attention(
        *(part.astype(np.float64).reshape(rows, -1, head_dim) for part in (q, k, v)),
        scale=scale,
        window=window,
        soft_cap=soft_cap,
    )
    np.testing.assert_allclose(results[0], want.reshape(rows, -1), rtol=1e-4, atol=2e-5)


def test_lm_head_soft_cap_is_tanh_over_all_sizes() -> None:
    sizes = np.concatenate([10.0 ** np.arange(-30.0, 5), np.linspace(0, 60, 500)])
    values = np.concatenate([-sizes, sizes]).astype(np.float32)
    table = np.zeros((len(values), 1), np.float32)
    table[0] = 1
    plan = Plan(
        "cap",
        Geometry(0, 1, 1, 1, 1, len(values), 8),
        (Buffer("x", 1), Buffer("y", 1)),
        (WeightSlot("t", table.shape, "t"), WeightSlot("h", table.shape, "h")),
        (),
        (ops.Embed("t", "x"), ops.SelectRows("x", "y"), ops.LmHead("y", "h", soft_cap=5.0)),
    )
    tensors = Tensors({"t": table, "h": values[:, None]})
    got = on_every_isa(
        lambda isa: native(plan, tensors, weights="f32", isa=isa).run(batch_of([([0], 0, [0])]))
    )
    want = 5 * np.tanh(values.astype(np.float64) / 5)
    np.testing.assert_allclose(got[0], want, rtol=6e-7)
