"""Large steps, whose rows go through all operations between two attentions in chunks."""

from __future__ import annotations

import pytest
from tests.exec.tiny_plans import (
    PLANS,
    batch_of,
    native,
    random_tensors,
    run_in_chunks,
    same_bits,
    tokens_for,
)

# Enough for five threads; neither a multiple of 16 nor of the number of threads.
LENGTH = 395

each_plan = pytest.mark.parametrize("name", PLANS)


@each_plan
@pytest.mark.parametrize("weights", ["int8", "int4", "bf16", "f32"])
def test_chunks_on_many_threads_leave_bits_as_they_are(name: str, weights: str) -> None:
    """Against steps of 40 rows on one thread, which run one operation after the other."""
    plan = PLANS[name]()
    tokens, slots = tokens_for(plan, LENGTH), range(LENGTH)
    options = {"weights": weights, "num_slots": LENGTH}
    alone = native(plan, random_tensors(plan, 1), num_threads=1, **options)
    want = run_in_chunks(alone, tokens, slots, 40)
    for num_threads in (1, 2, 3, 5):
        subject = native(plan, random_tensors(plan, 1), num_threads=num_threads, **options)
        for _ in range(3):  # threads meet each other differently each time
            same_bits(subject.run(batch_of([(tokens, 0, slots)])), want, f"{num_threads} threads")


@each_plan
def test_step_as_large_as_its_buffers(name: str) -> None:
    """Where chunks of whole blocks of rows would not fit, operations run one after the other."""
    plan = PLANS[name]()
    for length in (128, 129, 143, 144, 145, 255, 257):
        tokens, slots = tokens_for(plan, length), range(length)
        options = {"weights": "int8", "num_slots": length, "max_rows": length}
        want = run_in_chunks(native(plan, random_tensors(plan, 1), **options), tokens, slots, 30)
        for num_threads in (1, 2):
            subject = native(plan, random_tensors(plan, 1), num_threads=num_threads, **options)
            same_bits(subject.run(batch_of([(tokens, 0, slots)])), want, f"{length} rows")


@each_plan
def test_large_and_small_steps_take_turns(name: str) -> None:
    """Nothing that a chunk leaves behind in the buffers reaches the next step."""
    plan = PLANS[name]()
    tokens, slots = tokens_for(plan, LENGTH), range(LENGTH)
    subject = native(plan, random_tensors(plan, 1), weights="int4", num_slots=LENGTH, num_threads=2)
    want = subject.run(batch_of([(tokens, 0, slots)])).copy()
    for first in (300, LENGTH - 1, 200, LENGTH - 20):
        got = subject.run(batch_of([(tokens, first, slots)]))
        same_bits(got, want[first:], f"from row {first}")
