"""A profile of the native executor counts what its operations did, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from bench.engine.profile import measure_limits
from tests.exec.tiny_plans import (
    batch_of,
    gemma_like,
    llama_like,
    native,
    random_tensors,
    tokens_for,
)

from espalier._native import ThreadPool, available_isas, multiply_rates, read_bandwidth
from espalier.errors import EngineClosedError, UserInputError
from espalier.exec import plan as ops
from espalier.exec.plan import Plan
from espalier.exec.processors import usable_processors

# Two sequences: 5 rows from position 0; 2 rows after 4 positions that share the first one's slots.
BATCH = batch_of(
    [(range(5), 0, range(5)), ([0, 1, 2, 3, 9, 8], 4, [0, 1, 2, 3, 20, 21])], logit_rows=[4, 6]
)
CONTEXTS = (1, 2, 3, 4, 5, 5, 6)  # positions that each row sees
NUM_SLOTS = 7  # that all of them see


def expected_products(plan: Plan) -> dict[str, int]:
    shapes = {slot.name: slot.shape for slot in plan.weights}
    sums = {"linear": 0, "lm_head": 0, "attention": 0}
    geometry = plan.geometry
    for op in plan.ops:
        if isinstance(op, ops.Linear):
            sums["linear"] += len(CONTEXTS) * int(np.prod(shapes[op.weight]))
        elif isinstance(op, ops.LmHead):
            sums["lm_head"] += 2 * int(np.prod(shapes[op.weight]))
        elif isinstance(op, ops.Attention):
            seen = sum(min(c, op.window) if op.window else c for c in CONTEXTS)
            sums["attention"] += 2 * seen * geometry.num_heads * geometry.head_dim
    return sums


@pytest.mark.parametrize("make_plan", [llama_like, lambda: gemma_like(window=3)])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_profile_counts_products_and_kv(make_plan: object, num_threads: int) -> None:
    assert callable(make_plan)
    plan = make_plan()
    executor = native(plan, random_tensors(plan, 0), num_threads=num_threads)
    executor.start_profile()
    for _ in range(3):
        executor.run(BATCH)
    step, *entries = executor.take_profile()
    assert (step.name, step.calls) == ("step", 3)
    assert len({entry.name for entry in entries}) == len(entries)
    found = {
        kind: sum(entry.multiply_adds for entry in entries if entry.name.split()[0] == kind)
        for kind in ("linear", "lm_head", "attention")
    }
    assert found == {kind: 3 * count for kind, count in expected_products(plan).items()}
    assert step.multiply_adds == sum(found.values())
    assert step.num_bytes == sum(entry.num_bytes for entry in entries)
    parts = sum(entry.seconds for entry in entries)
    assert 0 < parts <= step.seconds * 1.0000001
    attention = next(entry for entry in entries if entry.name == "attention")
    assert attention.calls == 3 * plan.geometry.num_layers


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_profile_of_a_step_in_chunks_of_rows(num_threads: int) -> None:
    """Threads are at different operations at a time; each of these counts once all the same."""
    plan, rows = llama_like(), 395
    executor = native(plan, random_tensors(plan, 0), num_threads=num_threads)
    batch = batch_of([(tokens_for(plan, rows), 0, range(rows))], logit_rows=[rows - 1])
    executor.start_profile()
    executor.run(batch)
    executor.run(batch)
    step, *entries = executor.take_profile()
    calls = {entry.name: entry.calls for entry in entries}
    layers = plan.geometry.num_layers
    assert calls["attention"] == calls["gate"] == 2 * layers
    assert calls["add rms_norm"] == 2 * 2 * layers  # of attention and MLP
    shapes = {slot.name: slot.shape for slot in plan.weights}
    products = sum(int(np.prod(shapes[op.weight])) for op in plan.ops if isinstance(op, ops.Linear))
    found = sum(entry.multiply_adds for entry in entries if entry.name.startswith("linear"))
    assert found == 2 * rows * products
    assert all(entry.seconds > 0 for entry in entries)
    assert sum(entry.seconds for entry in entries) <= step.seconds * 1.0000001


def test_kv_that_sequences_share_counts_once() -> None:
    plan = llama_like()
    executor = native(plan, random_tensors(plan, 0), kv_dtype="bf16")
    executor.start_profile()
    executor.run(BATCH)
    [attention] = [entry for entry in executor.take_profile() if entry.name == "attention"]
    geometry = plan.geometry
    per_slot = 2 * geometry.num_kv_heads * geometry.head_dim * 2
    assert attention.num_bytes == geometry.num_layers * NUM_SLOTS * per_slot


def test_weights_are_read_once_a_step() -> None:
    plan = llama_like(num_layers=1)
    executor = native(plan, random_tensors(plan, 0), weights="int8")
    executor.start_profile()
    executor.run(BATCH)
    entries = executor.take_profile()
    products = sum(e.num_bytes for e in entries if e.name.startswith(("linear", "lm_head")))
    vectors = sum(-(-slot.shape[0] // 16) * 64 for slot in plan.weights if not slot.is_matrix)
    assert products == executor.memory_bytes()["weights"] - vectors


def test_profiling_changes_no_bit() -> None:
    plan = llama_like()
    executor = native(plan, random_tensors(plan, 0), num_threads=2)
    want = executor.run(BATCH).copy()
    executor.start_profile()
    assert executor.run(BATCH).tobytes() == want.tobytes()
    executor.take_profile()
    assert executor.run(BATCH).tobytes() == want.tobytes()


def test_a_profile_must_be_started() -> None:
    plan = llama_like()
    executor = native(plan, random_tensors(plan, 0))
    with pytest.raises(UserInputError, match="no profile was started; call start_profile"):
        executor.take_profile()
    executor.start_profile()
    assert next(entry.calls for entry in executor.take_profile()) == 0
    with pytest.raises(UserInputError):
        executor.take_profile()
    executor.close()
    with pytest.raises(EngineClosedError):
        executor.start_profile()


def test_limits_of_the_machine_are_measured() -> None:
    pool = ThreadPool(2, usable_processors())
    assert read_bandwidth(pool, 1 << 20, 1) > 0
    with pytest.raises(ValueError, match="nothing to read"):
        read_bandwidth(pool, 100)
    rates = dict(multiply_rates(pool))
    assert rates["f32 portable"] > 0, "on every machine"
    assert all(rate > 0 for rate in rates.values())
    assert len(rates) > 1 or available_isas() == "portable"


def test_every_product_has_a_limit() -> None:
    assert measure_limits(1, 1 << 20).products_per_s > 0
