"""Attention against its numpy twin and between instruction sets, bit for bit; shared prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exec import attention_twin as twin
from tests.exec.tiny_plans import (
    ISAS,
    PLANS,
    batch_of,
    llama_like,
    native,
    random_tensors,
    run_op,
    same_bits,
    tokens_for,
)

from espalier.errors import UserInputError
from espalier.exec import plan as ops
from espalier.exec.executor import Float32Array
from espalier.exec.plan import Geometry

KV_DTYPES = ["bf16", "int8"]
each_kv_dtype = pytest.mark.parametrize("kv_dtype", KV_DTYPES)


class Case:
    """Queries, keys and values of one sequence, and what attention makes of them."""

    def __init__(self, seed: int, rows: int, kv_heads: int, group: int, head_dim: int) -> None:
        random = np.random.default_rng(seed)
        self.rows, self.kv_heads, self.group, self.head_dim = rows, kv_heads, group, head_dim
        self.q, self.k, self.v = (
            random.normal(0, size, (rows, heads * head_dim)).astype(np.float32)
            for size, heads in ((1.5, kv_heads * group), (1.5, kv_heads), (1, kv_heads))
        )
        self.scale = head_dim**-0.5

    def run(self, isa: str, kv_dtype: str, window: int = 0, soft_cap: float = 0.0) -> Float32Array:
        heads = self.kv_heads * self.group
        attention = ops.Attention(0, "q", "out", self.scale, window=window, soft_cap=soft_cap)
        return run_op(
            {"q": self.q, "k": self.k, "v": self.v},
            [ops.KvWrite(0, "k", "v"), attention],
            ("out", heads * self.head_dim),
            geometry=Geometry(1, 1, heads, self.kv_heads, self.head_dim, 1, 1),
            isa=isa,
            kv_dtype=kv_dtype,
        ).reshape(self.rows, heads, self.head_dim)

    def twin(self, row: int, head: int, kv_dtype: str, window: int = 0) -> Float32Array:
        kv_head = head // self.group
        keys, values = (
            twin.store(x[: row + 1].reshape(row + 1, -1, self.head_dim)[:, kv_head], kv_dtype)
            for x in (self.k, self.v)
        )
        q = self.q[row].reshape(-1, self.head_dim)[head]
        return twin.attend(q, keys, values, scale=self.scale, window=window)

    def check(self, kv_dtype: str, rows: Sequence[int], window: int = 0) -> None:
        """Every instruction set gives the twin's bits in some rows, and its own in the others."""
        results = [self.run(isa, kv_dtype, window) for isa in ISAS]
        for isa, result in zip(ISAS, results, strict=True):
            same_bits(result, results[0], isa)
        for row in rows:
            for head in range(self.kv_heads * self.group):
                same_bits(results[0][row, head], self.twin(row, head, kv_dtype, window))


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    rows=st.integers(1, 140),
    kv_heads=st.integers(1, 2),
    group=st.integers(1, 5),
    head_dim=st.integers(1, 70),
    window=st.one_of(st.just(0), st.integers(1, 150)),
    kv_dtype=st.sampled_from(KV_DTYPES),
)
def test_every_isa_gives_the_bits_of_the_twin(
    *,
    seed: int,
    rows: int,
    kv_heads: int,
    group: int,
    head_dim: int,
    window: int,
    kv_dtype: str,
) -> None:
    Case(seed, rows, kv_heads, group, head_dim).check(kv_dtype, [0, rows // 2, rows - 1], window)


@each_kv_dtype
@pytest.mark.parametrize(
    ("rows", "kv_heads", "group", "head_dim", "window"),
    [
        (600, 1, 2, 20, 0),  # two segments
        (1100, 1, 1, 9, 530),  # a window over three
        (70, 3, 3, 64, 0),  # SmolLM2
        (130, 1, 4, 256, 100),  # Gemma 3
        (3, 1, 40, 32, 0),  # more heads than lanes
    ],
)
def test_shapes_of_models_and_long_contexts(
    *, rows: int, kv_heads: int, group: int, head_dim: int, window: int, kv_dtype: str
) -> None:
    case = Case(3, rows, kv_heads, group, head_dim)
    case.check(kv_dtype, [rows - 1], window)


@each_kv_dtype
def test_scores_of_all_sizes(kv_dtype: str) -> None:
    """Largest scores grow and fall by far more than one step of an exponential's range."""
    case = Case(5, 300, 1, 3, 33)
    sizes = 10.0 ** np.random.default_rng(6).uniform(-12, 2, (300, 1))
    case.k = (case.k * sizes).astype(np.float32)
    case.v = (case.v * sizes[::-1] ** 3).astype(np.float32)
    case.check(kv_dtype, [0, 63, 64, 200, 299])


@each_kv_dtype
@pytest.mark.parametrize("size", [1e5, 1e9, 1e12, 1e16])
def test_huge_scores(kv_dtype: str, size: float) -> None:
    """Where scores are far apart the largest takes it all, and nothing becomes not a number."""
    case = Case(11, 200, 1, 3, 33)
    case.k *= np.float32(size)
    case.check(kv_dtype, [0, 63, 64, 199])
    assert np.isfinite(case.run(ISAS[-1], kv_dtype)).all()


@each_kv_dtype
def test_subnormal_products_are_flushed_alike(kv_dtype: str) -> None:
    case = Case(7, 100, 1, 2, 40)
    case.q *= np.float32(1e-20)
    case.k *= np.float32(1e-20)
    case.v *= np.float32(1e-37)
    case.v[::3] *= np.float32(0)
    case.check(kv_dtype, [10, 99])


def test_negative_scale() -> None:
    case = Case(8, 70, 1, 2, 16)
    case.scale = -0.5
    case.check("bf16", [69])


@pytest.mark.parametrize("kv_dtype", ["bf16", "int8", "f32"])
def test_soft_caps_are_the_same_on_every_isa(kv_dtype: str) -> None:
    case = Case(9, 90, 2, 3, 24)
    results = [case.run(isa, kv_dtype, soft_cap=2.0) for isa in ISAS]
    for result in results:
        same_bits(result, results[0])
    assert not np.array_equal(results[0], case.run(ISAS[-1], kv_dtype))


@pytest.mark.parametrize("scale", [0.0, 1e-38, -1e-31, np.inf, np.nan])
def test_scales_that_tell_no_scores_apart_are_refused(scale: float) -> None:
    case = Case(1, 2, 1, 1, 4)
    case.scale = scale
    with pytest.raises(UserInputError, match="scale of scores is finite and at least 1e-30"):
        case.run("auto", "bf16")


@pytest.mark.parametrize("kv_dtype", ["bf16", "int8", "f32"])
@pytest.mark.parametrize("buffer", ["k", "v"])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_rows_that_do_not_see_a_poisoned_slot_keep_their_bits(
    kv_dtype: str, buffer: str, poison: float
) -> None:
    for isa in ISAS:
        case = Case(10, 80, 1, 1, 20)  # one head: the identity that follows spreads what is not one
        clean = case.run(isa, kv_dtype, window=30)
        getattr(case, buffer)[40, 3] = poison
        got = case.run(isa, kv_dtype, window=30)
        is_far = (np.arange(80) < 40) | (np.arange(80) >= 70)
        same_bits(got[is_far], clean[is_far])
        assert np.isnan(got[40:70]).all()


def tree_of(random: np.random.Generator, count: int, vocab: int) -> list[list[int]]:
    """Token lists that share prefixes of random lengths, in a random tree."""
    found: list[list[int]] = [[]]
    while len(found) <= count:
        parent = found[int(random.integers(0, len(found)))]
        keep = int(random.integers(0, len(parent) + 1))
        tail = random.integers(0, vocab, int(random.integers(1, 260)))
        found.append([*parent[:keep], *(int(token) for token in tail)])
    return found[1:]


def slots_by_prefix(texts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Slots as a radix tree gives them: the same for the same prefix."""
    known: dict[tuple[int, int], int] = {}  # (slot of the prefix before, token) to slot
    out = []
    for text in texts:
        slots, last = [], -1
        for token in text:
            last = known.setdefault((last, token), len(known))
            slots.append(last)
        out.append(slots)
    return out


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    count=st.integers(1, 12),
    name=st.sampled_from(sorted(PLANS)),
    kv_dtype=st.sampled_from(["bf16", "int8", "f32"]),
    num_threads=st.integers(1, 3),
    isa=st.sampled_from(ISAS),
)
def test_shared_prefixes_leave_bits_as_they_are(
    *, seed: int, count: int, name: str, kv_dtype: str, num_threads: int, isa: str
) -> None:
    """A step over a tree of sequences, each with some last rows, against each sequence alone."""
    plan, random = PLANS[name](), np.random.default_rng(seed)
    texts = tree_of(random, count, plan.geometry.vocab_size)
    slots = slots_by_prefix(texts)
    options = {"weights": "int8", "kv_dtype": kv_dtype, "num_slots": 4096, "isa": isa}
    subject = native(plan, random_tensors(plan, 1), num_threads=num_threads, **options)
    alone = native(plan, random_tensors(plan, 1), **options)
    parts, wanted, written = [], [], set[int]()
    for text, own in zip(texts, slots, strict=True):
        first = len(text) - int(random.integers(1, min(20, len(text)) + 1))
        while first < len(text) and not written.isdisjoint(own[first:]):
            first += 1
        if first == len(text):
            continue  # its last slot is written by another sequence of this step
        subject.run(batch_of([(text, 0, own)], logit_rows=[]))
        wanted.append(alone.run(batch_of([(text, 0, range(len(text)))]))[first:].copy())
        written.update(own[first:])
        parts.append((text, first, own))
    same_bits(subject.run(batch_of(parts)), np.concatenate(wanted))


@each_kv_dtype
def test_many_rows_with_one_long_prefix(kv_dtype: str) -> None:
    """More rows than go together, over several segments, and slots that lie anywhere."""
    plan = llama_like(num_layers=1)
    prefix = tokens_for(plan, 1100)
    slots = np.random.default_rng(2).permutation(2000).tolist()
    texts = [[*prefix, *tokens_for(plan, 1 + i % 70, seed=i)] for i in range(150)]
    ends = np.cumsum([0, *(len(text) - 1100 for text in texts)]).tolist()
    places = [[*slots[:1100], *range(2000 + a, 2000 + b)] for a, b in pairwise(ends)]
    options = {"weights": "int8", "kv_dtype": kv_dtype, "num_slots": 2000 + ends[-1]}
    executor = native(plan, random_tensors(plan, 1), num_threads=2, max_rows=8192, **options)
    executor.run(batch_of([(prefix, 0, slots)], logit_rows=[]))
    parts = [(text, 1100, own) for text, own in zip(texts, places, strict=True)]
    want = [executor.run(batch_of([part]))[-1].copy() for part in parts]
    got = executor.run(batch_of([(t, len(t) - 1, own) for t, _, own in parts]))
    same_bits(got, np.stack(want))


@each_kv_dtype
@pytest.mark.parametrize("name", PLANS)
def test_prefix_that_ends_in_a_segment_is_gone_on_from(name: str, kv_dtype: str) -> None:
    """Sums of shared blocks, for all rows at once, are where blocks of one row go on."""
    plan = PLANS[name]()
    prefix = tokens_for(plan, 640)
    options = {"weights": "int8", "kv_dtype": kv_dtype, "num_slots": 4096}
    ends = [1, 3, 64, 65, 200]
    texts = [[*prefix, *tokens_for(plan, end, seed=end)] for end in ends]
    places = [[*range(640), *range(700 + 300 * i, 1000 + 300 * i)] for i in range(len(ends))]
    parts = [(text, 640, place) for text, place in zip(texts, places, strict=True)]
    results = []
    for isa in ISAS:
        executor = native(plan, random_tensors(plan, 1), num_threads=2, isa=isa, **options)
        executor.run(batch_of([(prefix, 0, range(640))], logit_rows=[]))
        want = [executor.run(batch_of([part]))[-1].copy() for part in parts]
        got = executor.run(batch_of([(t, len(t) - 1, place) for t, _, place in parts])).copy()
        same_bits(got, np.stack(want), isa)
        results.append(got)
    for result in results:
        same_bits(result, results[0])
