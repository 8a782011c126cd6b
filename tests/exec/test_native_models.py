"""Whole tiny models: near the reference executor, and the same bits however they are run."""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exec.tiny_plans import (
    ISAS,
    PLANS,
    batch_of,
    llama_like,
    native,
    random_tensors,
    run_in_chunks,
    same_bits,
    tokens_for,
)

from espalier.exec.executor import ExecutorOptions, Float32Array
from espalier.exec.reference import ReferenceExecutor

FORMATS = [
    ("int8", "bf16"),
    ("int4", "bf16"),
    ("int8", "int8"),
    ("bf16", "bf16"),
    ("f32", "f32"),
]
LENGTH = 150  # more than two blocks of positions

each_plan = pytest.mark.parametrize("name", PLANS)
each_format = pytest.mark.parametrize(("weights", "kv_dtype"), FORMATS)


@cache
def whole(name: str, weights: str, kv_dtype: str, length: int = LENGTH) -> Float32Array:
    """Logits of every position of one sequence, computed alone and in one step."""
    plan = PLANS[name]()
    executor = native(
        plan, random_tensors(plan, 1), weights=weights, kv_dtype=kv_dtype, num_slots=length
    )
    batch = batch_of([(tokens_for(plan, length), 0, range(length))])
    logits: Float32Array = executor.run(batch).copy()
    return logits


@each_plan
@pytest.mark.parametrize("kv_dtype", ["f32", "bf16"])
def test_f32_is_near_reference(name: str, kv_dtype: str) -> None:
    plan = PLANS[name]()
    options = ExecutorOptions(num_slots=LENGTH, kv_dtype=kv_dtype)
    reference = ReferenceExecutor(plan, random_tensors(plan, 1), options)
    want = reference.run(batch_of([(tokens_for(plan, LENGTH), 0, range(LENGTH))]))
    got = whole(name, "f32", kv_dtype)
    # With a bf16 pool queries and exponentials are rounded too, which the reference does not do;
    # test_attention.py has the exact oracle.
    np.testing.assert_allclose(got, want, atol=2e-5 if kv_dtype == "f32" else 2e-2)
    assert np.abs(want).max() > 1


@each_plan
def test_int8_is_like_reference(name: str) -> None:
    got, want = whole(name, "int8", "bf16"), whole(name, "f32", "f32")
    cosine = (got * want).sum(-1) / np.linalg.norm(got, axis=-1) / np.linalg.norm(want, axis=-1)
    assert cosine.min() > 0.999
    assert not np.array_equal(got, want)


@each_plan
@each_format
def test_every_isa_gives_the_same_bits(name: str, weights: str, kv_dtype: str) -> None:
    plan = PLANS[name]()
    for isa in ISAS:
        executor = native(
            plan, random_tensors(plan, 1), weights=weights, kv_dtype=kv_dtype, isa=isa
        )
        got = executor.run(batch_of([(tokens_for(plan, LENGTH), 0, range(LENGTH))]))
        same_bits(got, whole(name, weights, kv_dtype))


@each_plan
@each_format
def test_chunks_give_the_same_bits(name: str, weights: str, kv_dtype: str) -> None:
    plan = PLANS[name]()
    executor = native(plan, random_tensors(plan, 1), weights=weights, kv_dtype=kv_dtype)
    for chunk in (1, 7, 64, LENGTH):
        got = run_in_chunks(executor, tokens_for(plan, LENGTH), range(LENGTH), chunk)
        same_bits(got, whole(name, weights, kv_dtype))


@each_plan
@each_format
def test_threads_give_the_same_bits(name: str, weights: str, kv_dtype: str) -> None:
    plan = PLANS[name]()
    tokens = tokens_for(plan, LENGTH)
    for num_threads in (2, 3, 8):
        executor = native(
            plan,
            random_tensors(plan, 1),
            weights=weights,
            kv_dtype=kv_dtype,
            num_threads=num_threads,
        )
        got = run_in_chunks(executor, tokens, range(LENGTH), 50)
        same_bits(got, whole(name, weights, kv_dtype))
        executor.close()


@each_plan
@each_format
def test_strangers_and_slots_give_the_same_bits(name: str, weights: str, kv_dtype: str) -> None:
    """The subject decodes its last 20 tokens among 16 strangers that extend or decode beside it."""
    plan = PLANS[name]()
    random = np.random.default_rng(2)
    tokens, slots = tokens_for(plan, LENGTH), random.permutation(4096).tolist()
    executor = native(
        plan, random_tensors(plan, 1), weights=weights, kv_dtype=kv_dtype, num_slots=4096
    )
    want = whole(name, weights, kv_dtype)
    start = LENGTH - 20
    same_bits(executor.run(batch_of([(tokens[:start], 0, slots)])), want[:start])
    strangers = [tokens_for(plan, 3 + 11 * i, seed=100 + i) for i in range(16)]
    spare = [slots[LENGTH + 200 * i :] for i in range(16)]
    for i, stranger in enumerate(strangers):
        executor.run(batch_of([(stranger[:2], 0, spare[i])]))
    for last in range(start + 1, LENGTH + 1):
        done = last - start
        parts = [
            (stranger[: min(len(stranger), 2 + done * (1 + i % 3))], 2, spare[i])
            for i, stranger in enumerate(strangers)
        ]
        place = int(random.integers(0, 17))
        parts.insert(place, (tokens[:last], last - 1, slots))
        row = sum(len(part[0]) - part[1] for part in parts[:place])
        got = executor.run(batch_of(parts, logit_rows=[row]))
        same_bits(got[0], want[last - 1])


@each_plan
@each_format
def test_long_context_gives_the_same_bits_in_chunks(name: str, weights: str, kv_dtype: str) -> None:
    """Over several segments of positions, and with more rows than one tile of attention."""
    plan, length = PLANS[name](), 1300
    tokens = tokens_for(plan, length)
    want = whole(name, weights, kv_dtype, length)
    executor = native(
        plan, random_tensors(plan, 1), weights=weights, kv_dtype=kv_dtype, num_slots=1300
    )
    slots = np.random.default_rng(4).permutation(1300).tolist()
    for first, last in ((0, 500), (500, 1023), (1023, 1024), (1024, 1025), (1025, 1299)):
        got = executor.run(batch_of([(tokens[:last], first, slots)]))
        same_bits(got, want[first:last])
    got = executor.run(batch_of([(tokens, length - 1, slots)]))
    same_bits(got[0], want[-1])
    if weights == "f32":
        reference = ReferenceExecutor(
            plan, random_tensors(plan, 1), ExecutorOptions(num_slots=1300, max_rows=1300)
        )
        few = batch_of([(tokens, 0, range(length))], logit_rows=[511, 512, 1299])
        np.testing.assert_allclose(want[[511, 512, 1299]], reference.run(few), atol=3e-5)


@settings(max_examples=25, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 79), max_size=5),
    slots=st.permutations(range(90)),
    strangers=st.lists(st.integers(1, 30), max_size=4),
    place=st.integers(0, 4),
    name=st.sampled_from(sorted(PLANS)),
    num_threads=st.integers(1, 3),
    isa=st.sampled_from(ISAS),
)
def test_any_way_to_run_gives_the_same_bits(
    *,
    cuts: list[int],
    slots: list[int],
    strangers: list[int],
    place: int,
    name: str,
    num_threads: int,
    isa: str,
) -> None:
    plan = PLANS[name]()
    tokens, want = tokens_for(plan, LENGTH)[:80], whole(name, "int8", "bf16")
    executor = native(
        plan, random_tensors(plan, 1), weights="int8", num_threads=num_threads, isa=isa
    )
    borders = sorted({0, 80, *cuts})
    for first, last in itertools.pairwise(borders):
        parts = [
            (tokens_for(plan, count, seed=count), 0, range(100 + 40 * i, 140 + 40 * i))
            for i, count in enumerate(strangers)
        ]
        parts.insert(min(place, len(parts)), (tokens[:last], first, slots))  # type: ignore[arg-type]
        before = sum(strangers[: min(place, len(strangers))])
        got = executor.run(batch_of(parts))[before : before + last - first]
        same_bits(got, want[first:last])


def test_no_logits_asked_for_gives_none_and_still_writes_the_pool() -> None:
    plan = llama_like()
    executor = native(plan, random_tensors(plan, 1), weights="int8")
    tokens = tokens_for(plan, LENGTH)
    none = executor.run(batch_of([(tokens[:100], 0, range(100))], logit_rows=[]))
    assert none.shape == (0, plan.geometry.vocab_size)
    got = executor.run(batch_of([(tokens, 100, range(LENGTH))], logit_rows=[10, 49]))
    same_bits(got, whole("llama", "int8", "bf16")[[110, 149]])


def test_sequences_that_share_a_prefix_see_it() -> None:
    plan = llama_like()
    executor = native(plan, random_tensors(plan, 1), weights="int8")
    tokens = tokens_for(plan, LENGTH)
    executor.run(batch_of([(tokens[:100], 0, range(100))]))
    other = [*tokens[:100], 5, 6, 7]
    batch = batch_of([(tokens[:103], 100, range(103)), (other, 100, [*range(100), 200, 201, 202])])
    got = executor.run(batch).copy()
    same_bits(got[:3], whole("llama", "int8", "bf16")[100:103])
    alone = native(plan, random_tensors(plan, 1), weights="int8")
    same_bits(got[3:], alone.run(batch_of([(other, 0, range(103))]))[100:])


def test_logits_stay_readable_after_the_next_run_and_after_close() -> None:
    plan = llama_like()
    executor = native(plan, random_tensors(plan, 1), weights="int8")
    tokens = tokens_for(plan, LENGTH)
    few = executor.run(batch_of([(tokens[:2], 0, range(2))]))
    many = executor.run(batch_of([(tokens, 0, range(LENGTH))]))
    executor.close()
    assert np.isfinite(few).all()
    same_bits(many, whole("llama", "int8", "bf16"))
