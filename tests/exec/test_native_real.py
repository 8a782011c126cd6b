"""The native executor on real weights: near the reference, and the same bits on every path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.exec.tiny_plans import ISAS, batch_of, run_in_chunks

from espalier.exec.executor import ExecutorOptions, Float32Array
from espalier.exec.native import NativeExecutor
from espalier.exec.reference import ReferenceExecutor
from espalier.loaders.model import LoadedModel, load_model

LENGTH = 70
FAST_ISAS = [isa for isa in ISAS if isa != "portable"]


@pytest.fixture(scope="module", params=["smollm2_path", "gemma3_path"])
def model(request: pytest.FixtureRequest) -> LoadedModel:
    path: Path = request.getfixturevalue(request.param)
    return load_model(path)


def tokens_of(model: LoadedModel) -> list[int]:
    text = "The gardener ties each branch to the frame, and in spring cuts back what grew outside. "
    return model.tokenizer.encode(text * 10)[:LENGTH]


def run(model: LoadedModel, count: int, **options: object) -> Float32Array:
    given: dict[str, object] = {"num_slots": LENGTH, "max_rows": LENGTH, **options}
    executor = NativeExecutor(
        model.plan,
        model.weights,
        ExecutorOptions(**given),  # type: ignore[arg-type]
    )
    batch = batch_of([(tokens_of(model)[:count], 0, range(count))])
    logits: Float32Array = executor.run(batch).copy()
    executor.close()
    return logits


def test_f32_is_near_reference_and_int8_is_like_it(model: LoadedModel) -> None:
    count = 8
    reference = ReferenceExecutor(model.plan, model.weights, ExecutorOptions(num_slots=count))
    want = reference.run(batch_of([(tokens_of(model)[:count], 0, range(count))]))
    got = run(model, count, weights="f32")
    assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()
    int8 = run(model, count, weights="int8")
    norms = np.linalg.norm(want, axis=-1) * np.linalg.norm(int8, axis=-1)
    assert ((want * int8).sum(-1) / norms).min() > 0.99


def test_int8_gives_the_same_bits_in_chunks_and_on_every_path(model: LoadedModel) -> None:
    want = run(model, LENGTH, weights="int8")
    for isa in FAST_ISAS[:-1]:
        np.testing.assert_array_equal(run(model, 16, weights="int8", isa=isa), want[:16])
    options = ExecutorOptions(num_slots=LENGTH, max_rows=LENGTH, weights="int8", num_threads=2)
    executor = NativeExecutor(model.plan, model.weights, options)
    for chunk in (1, 7, 64):
        slots = np.random.default_rng(chunk).permutation(LENGTH).tolist()
        got = run_in_chunks(executor, tokens_of(model), slots, chunk)
        np.testing.assert_array_equal(got, want)
    executor.close()
