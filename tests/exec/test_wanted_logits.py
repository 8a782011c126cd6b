"""Logits of some tokens only: the bits of the whole head, for every format and instruction set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exec.tiny_plans import (
    EPS,
    ISAS,
    PLANS,
    Tensors,
    batch_of,
    gemma_like,
    llama_like,
    native,
    random_tensors,
    same_bits,
    slots_of,
    tokens_for,
)

from espalier.errors import UserInputError
from espalier.exec import plan as ops
from espalier.exec.executor import ExecutorOptions, Float32Array, Int32Array, StepBatch
from espalier.exec.native import NativeExecutor
from espalier.exec.plan import Buffer, Geometry, Plan
from espalier.exec.reference import ReferenceExecutor

WEIGHTS = ("int8", "int4", "bf16", "f32")
VOCAB, WIDTH, NUM_ROWS = 1003, 160, 40  # 62 tiles of 16 tokens and one of 11
Wanted = Sequence[Sequence[int] | None]  # per row of logits; None: all of them


def capped_head() -> Plan:
    """Logits are one product with the head, soft-capped; row i of the table is token i."""
    return Plan(
        "capped head",
        Geometry(0, WIDTH, 1, 1, 1, VOCAB, 4096),
        (Buffer("x", WIDTH), Buffer("y", WIDTH)),
        slots_of(table=(VOCAB, WIDTH), head=(VOCAB, WIDTH)),
        (),
        (ops.Embed("table", "x"), ops.SelectRows("x", "y"), ops.LmHead("y", "head", soft_cap=5.0)),
    )


@lru_cache
def head_executor(weights: str, isa: str) -> NativeExecutor:
    plan = capped_head()
    return native(plan, random_tensors(plan, 3), weights=weights, isa=isa, num_threads=2)


@lru_cache
def whole_logits(weights: str) -> Float32Array:
    """Of the rows 0 to NUM_ROWS - 1 of the table, [NUM_ROWS, VOCAB]."""
    logits: Float32Array = head_executor(weights, ISAS[-1]).run(rows_batch(range(NUM_ROWS))).copy()
    return logits


def rows_batch(tokens: Sequence[int]) -> StepBatch:
    return batch_of([(tokens, 0, range(len(tokens)))])


def ints(*values: int) -> Int32Array:
    return np.array(values, dtype=np.int32)


def wanting(batch: StepBatch, wanted: Wanted) -> StepBatch:
    ids = [ints(*(span or ())) for span in wanted]
    starts = np.cumsum([0] + [len(span) for span in ids]).astype(np.int32)
    return replace(batch, wanted_starts=starts, wanted_ids=np.concatenate([ints(), *ids]))


def check_wanted(got: Float32Array, want: Float32Array, wanted: Wanted, message: str = "") -> None:
    """Every wanted logit has the bits of the whole head; nothing is known of the others."""
    assert got.shape == want.shape
    for row, span in enumerate(wanted):
        ids = np.arange(got.shape[1]) if not span else np.asarray(span)
        same_bits(got[row, ids], want[row, ids], f"row {row} {message}")


# What one row may want: anything, all, a few neighbours, whole tiles, the last, shorter tile.
spans = st.one_of(
    st.none(),
    st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=300),
    st.builds(
        lambda first, n: list(range(first, min(VOCAB, first + n))),
        st.integers(0, VOCAB - 1),
        st.integers(1, 60),
    ),
    st.builds(
        lambda first, n: list(range(16 * first, 16 * (first + n))),
        st.integers(0, 50),
        st.integers(1, 12),
    ),
    st.lists(st.integers(VOCAB - VOCAB % 16, VOCAB - 1), min_size=1, max_size=20),
)


@pytest.mark.parametrize("weights", WEIGHTS)
@settings(max_examples=60, deadline=None)
@given(wanted=st.lists(spans, min_size=1, max_size=NUM_ROWS))
def test_wanted_logits_are_those_of_the_whole_head(weights: str, wanted: Wanted) -> None:
    want = whole_logits(weights)[: len(wanted)]
    batch = wanting(rows_batch(range(len(wanted))), wanted)
    for isa in ISAS:
        executor = head_executor(weights, isa)
        executor.run(rows_batch(range(100, 100 + NUM_ROWS)))  # leaves other logits in the buffer
        check_wanted(executor.run(batch), want, wanted, isa)


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("isa", ISAS)
def test_any_number_of_whole_rows_may_be_among_them(weights: str, isa: str) -> None:
    """Whole rows go through AMX in blocks of 16, or one by one up to four."""
    random = np.random.default_rng(4)
    for num_whole in (0, 1, 3, 4, 5, 8, 15, 16, 17, 31):
        for num_some in (1, 2, 9):
            count = num_whole + num_some
            some = set(random.choice(count, num_some, replace=False).tolist())
            ids = [random.integers(0, VOCAB, 20).tolist() for _ in range(count)]
            wanted = [ids[row] if row in some else None for row in range(count)]
            got = head_executor(weights, isa).run(wanting(rows_batch(range(count)), wanted))
            check_wanted(got, whole_logits(weights)[:count], wanted, f"of {num_whole} and some")


@pytest.mark.parametrize("weights", WEIGHTS)
def test_rows_that_want_the_same_tiles_are_computed_together(weights: str) -> None:
    wanted = [list(range(8, 200)), list(range(8, 200)), None, [9, 30, 1002], [9, 30, 1002], [9]]
    batch = wanting(rows_batch(range(6)), wanted)
    for isa in ISAS:
        got = head_executor(weights, isa).run(batch)
        check_wanted(got, whole_logits(weights)[:6], wanted, isa)


def tail_plan() -> Plan:
    """Products and a norm between the selected rows and the head."""
    vocab, width, inner = 77, 70, 130
    return Plan(
        "tail",
        Geometry(0, width, 1, 1, 1, vocab, 4096),
        (Buffer("x", width), Buffer("y", width), Buffer("z", inner)),
        slots_of(
            table=(vocab, width),
            up=(inner, width),
            bias=(inner,),
            norm=(inner,),
            head=(vocab, inner),
        ),
        (),
        (
            ops.Embed("table", "x"),
            ops.SelectRows("x", "y"),
            ops.Linear("y", "up", "z", bias="bias"),
            ops.RmsNorm("z", "norm", "z", EPS),
            ops.LmHead("z", "head"),
        ),
    )


@pytest.mark.parametrize("weights", WEIGHTS)
def test_products_before_the_head_serve_both_kinds_of_rows(weights: str) -> None:
    plan = tail_plan()
    tensors = random_tensors(plan, 1)
    wanted: Wanted = [None if row % 3 else [row, 76] for row in range(20)]
    for isa in ISAS:
        executor = native(plan, tensors, weights=weights, isa=isa)
        for whole in (wanted, [[5]] * 20, [None] + [[5]] * 19):
            want = executor.run(rows_batch(range(20))).copy()
            got = executor.run(wanting(rows_batch(range(20)), whole))
            check_wanted(got, want, whole, isa)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_models_give_the_same_bits(name: str, num_threads: int) -> None:
    """Sequences with several rows of logits, a tied head or one of its own, soft caps."""
    plan = PLANS[name]()
    executor = native(plan, random_tensors(plan, 0), num_threads=num_threads)
    tokens = tokens_for(plan, 40)
    batch = batch_of(
        [(tokens[:20], 0, range(20)), (tokens, 20, range(40))], logit_rows=[3, 5, 19, 20, 38, 39]
    )
    want = executor.run(batch).copy()
    wanted = [[7], None, [96, 0, 0, 7], None, list(range(50)), [3]]
    check_wanted(executor.run(wanting(batch, wanted)), want, wanted)
    same_bits(executor.run(wanting(batch, [None] * 6)).copy(), want)
    same_bits(executor.run(batch), want)


def test_the_reference_marks_what_nobody_wants() -> None:
    plan = llama_like()
    reference = ReferenceExecutor(plan, random_tensors(plan, 0), ExecutorOptions(num_slots=64))
    batch = batch_of([(tokens_for(plan, 6), 0, range(6))], logit_rows=[1, 3, 5])
    want = reference.run(batch).copy()
    wanted: Wanted = [[5, 90], None, [0]]
    got = reference.run(wanting(batch, wanted))
    check_wanted(got, want, wanted)
    assert np.isnan(got).sum(axis=1).tolist() == [97 - 2, 0, 97 - 1]


def test_a_step_without_logits_reads_nothing_of_the_head() -> None:
    plan = gemma_like()
    executor = native(plan, random_tensors(plan, 0))
    batch = batch_of([(tokens_for(plan, 6), 0, range(6))], logit_rows=[])
    for step in (batch, wanting(batch, [])):
        executor.start_profile()
        assert executor.run(step).shape == (0, 130)
        [head] = [entry for entry in executor.take_profile() if entry.name.startswith("lm_head")]
        assert (head.num_bytes, head.multiply_adds) == (0, 0)


def test_a_profile_counts_tiles_once_and_products_of_each_row() -> None:
    executor = head_executor("int8", ISAS[-1])
    tile_bytes = -(-WIDTH // 64) * 64 * 16 + -(-WIDTH // 64) * 16 * 4

    def cost(wanted: Wanted) -> tuple[float, float]:
        batch = rows_batch(range(len(wanted)))
        executor.start_profile()
        executor.run(wanting(batch, wanted))
        step, *entries = executor.take_profile()
        assert sum(entry.seconds for entry in entries) <= step.seconds * 1.0000001
        [head] = [entry for entry in entries if entry.name.startswith("lm_head")]
        return head.num_bytes / tile_bytes, head.multiply_adds / WIDTH

    assert cost([[3, 900, 901]]) == (2, 32)
    assert cost([[3, 900], [3], [2, 1002]]) == (3, 4 * 16 + 11)
    assert cost([None, [3]]) == (63, VOCAB + 16)
    assert cost([list(range(40))]) == (3, 48)


BAD_WANTED: dict[str, tuple[dict[str, object], str]] = {
    "token beyond vocabulary": ({"wanted_ids": ints(1, 2, 1003)}, "tokens are 0 to 1002"),
    "token below 0": ({"wanted_ids": ints(1, -2, 3)}, r"wanted_ids\[1\] is -2"),
    "too few starts": ({"wanted_starts": ints(0, 3)}, "2 entries; 2 rows of logits need one more"),
    "too many starts": ({"wanted_starts": ints(0, 1, 1, 3)}, "4 entries"),
    "no starts": ({"wanted_starts": ints()}, "wanted_starts is empty"),
    "starts from 1": ({"wanted_starts": ints(1, 2, 3)}, r"wanted_starts\[0\] is 1, not 0"),
    "starts descend": ({"wanted_starts": ints(0, 4, 3)}, r"wanted_starts\[2\] is 3; they may not"),
    "starts below 0": ({"wanted_starts": ints(0, -1, 3)}, r"wanted_starts\[1\] is -1"),
    "starts end early": ({"wanted_starts": ints(0, 1, 2)}, "ends at 2, not at 3"),
    "starts end late": ({"wanted_starts": ints(0, 1, 4)}, "ends at 4, not at 3"),
    "ids alone": ({"wanted_starts": None}, "come together"),
    "starts alone": ({"wanted_ids": None}, "come together"),
    "other type": ({"wanted_ids": np.arange(3)}, "wanted_ids is int64"),
    "other shape": ({"wanted_starts": np.zeros((3, 1), np.int32)}, r"wanted_starts is int32 \(3"),
}


@pytest.mark.parametrize("case", BAD_WANTED)
def test_bad_wanted_tokens_are_refused(case: str) -> None:
    changes, message = BAD_WANTED[case]
    executor = head_executor("int8", ISAS[-1])
    good = wanting(rows_batch(range(2)), [[1], [2, 3]])
    with pytest.raises(UserInputError, match=message):
        executor.run(replace(good, **changes))  # type: ignore[arg-type]
    check_wanted(executor.run(good), whole_logits("int8")[:2], [[1], [2, 3]])


def test_a_head_with_broken_rows_gives_the_same_wanted_logits() -> None:
    """Inputs that are no numbers stay in their rows, whole or not."""
    plan = capped_head()
    values = dict(random_tensors(plan, 3).values)
    values["table"][1, 5] = np.nan
    values["table"][2, 7] = np.inf
    wanted: Wanted = [[4, 600], [4, 600], None, [4], None, [600], None, None, None]
    for weights in WEIGHTS:
        for isa in ISAS:
            executor = native(plan, Tensors(values), weights=weights, isa=isa)
            want = executor.run(rows_batch(range(9))).copy()
            got = executor.run(wanting(rows_batch(range(9)), wanted))
            for row in (0, 3, 4, 5, 6, 7, 8):
                check_wanted(got[row : row + 1], want[row : row + 1], wanted[row : row + 1], isa)
