"""What a slot of the KV pool takes is what executors of both kinds hold."""

from __future__ import annotations

import pytest
from tests.exec.tiny_plans import gemma_like, llama_like, random_tensors

from espalier.errors import UnsupportedError, UserInputError
from espalier.exec.executor import ExecutorOptions
from espalier.exec.factory import EXECUTOR_KINDS, make_executor, slot_bytes
from espalier.exec.kv_format import KV_DTYPES, resolve_kv_dtype

NUM_SLOTS = 128  # parts of a native pool are padded to 64 bytes; these need none


@pytest.mark.parametrize("make_plan", [llama_like, gemma_like])
@pytest.mark.parametrize("kv_dtype", ["auto", *KV_DTYPES])
@pytest.mark.parametrize(
    ("kind", "weights"),
    [("native", "auto"), ("native", "int8"), ("native", "f32"), ("reference", "auto")],
)
def test_a_slot_takes_what_the_executor_holds(
    make_plan: object, kv_dtype: str, kind: str, weights: str
) -> None:
    assert callable(make_plan)
    plan = make_plan()
    options = ExecutorOptions(
        num_slots=NUM_SLOTS, weights=weights, kv_dtype=kv_dtype, num_threads=1, max_rows=8
    )
    executor = make_executor(kind, plan, random_tensors(plan, 0), options)
    per_slot = slot_bytes(kind, plan.geometry, weights, kv_dtype)
    assert executor.memory_bytes()["kv_pool"] == NUM_SLOTS * per_slot
    executor.close()


def test_auto_goes_with_the_weights() -> None:
    assert resolve_kv_dtype("auto", "f32") == "f32"
    assert {resolve_kv_dtype("auto", name) for name in ("auto", "int8", "int4", "bf16")} == {"bf16"}
    assert resolve_kv_dtype("int8", "f32") == "int8"


@pytest.mark.parametrize("kind", EXECUTOR_KINDS)
def test_unknown_names_are_refused(kind: str) -> None:
    geometry = llama_like().geometry
    with pytest.raises(UnsupportedError, match="kv_dtype is 'fp8'; auto, bf16, int8, f32"):
        slot_bytes(kind, geometry, "auto", "fp8")
    with pytest.raises(UserInputError, match="'torch' is unknown; allowed are native, reference"):
        slot_bytes("torch", geometry, "auto", "auto")


def test_threads_are_lent_by_those_who_have_some() -> None:
    plan = llama_like()
    options = ExecutorOptions(num_slots=8, num_threads=2, max_rows=8)
    tensors = random_tensors(plan, 0)
    native = make_executor("native", plan, tensors, options)
    assert native.thread_pool is not None
    assert native.thread_pool.num_threads == 2
    assert make_executor("reference", plan, tensors, options).thread_pool is None
    native.close()
