"""What the native executor refuses: options, plans, tensors and steps, with errors that say why."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from tests.exec.native_threads import have_left, thread_ids, threads_started_since
from tests.exec.tiny_plans import (
    ISAS,
    Tensors,
    batch_of,
    llama_like,
    native,
    random_tensors,
    tokens_for,
)

from espalier import settings
from espalier.errors import (
    BackendError,
    CapacityError,
    EngineClosedError,
    ModelFileError,
    UnsupportedError,
    UserInputError,
)
from espalier.exec import memory
from espalier.exec import native as native_module
from espalier.exec import plan as ops
from espalier.exec.executor import ExecutorOptions, StepBatch
from espalier.exec.factory import make_executor
from espalier.exec.native import NativeExecutor
from espalier.exec.plan import Plan, Rope, RopeStyle, WeightSlot
from espalier.exec.processors import usable_processors
from espalier.exec.reference import ReferenceExecutor


def subject(**options: object) -> NativeExecutor:
    plan = llama_like(max_context=40)
    return native(plan, random_tensors(plan, 0), num_slots=64, max_rows=20, **options)


def good_batch() -> StepBatch:
    """A sequence with 4 of 6 positions new, and one that decodes its third token."""
    return batch_of([([1, 2, 3, 4, 5, 6], 2, range(6)), ([7, 8, 9], 2, [10, 11, 12])])


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, dtype=np.int32)


BAD_STEPS: dict[str, tuple[dict[str, object], str]] = {
    "token below 0": ({"token_ids": ints(1, 2, 3, -1, 5)}, r"token_ids\[3\] is -1"),
    "token beyond vocabulary": ({"token_ids": ints(1, 97, 3, 4, 5)}, "tokens are 0 to 96"),
    "fewer positions": ({"positions": ints(2, 3, 4, 5)}, "4 positions for 5 tokens"),
    "position below 0": ({"positions": ints(-1, 3, 4, 5, 2)}, r"positions\[0\] is -1"),
    "positions descend": ({"positions": ints(3, 2, 4, 5, 2)}, "positions ascend"),
    "position twice": ({"positions": ints(2, 3, 3, 5, 2)}, "positions ascend"),
    "position beyond slots": ({"positions": ints(2, 3, 4, 6, 2)}, r"positions\[3\] is 6"),
    "slot too many": ({"positions": ints(2, 3, 4, 5, 1)}, "ends at position 1 and has 3"),
    "slot below 0": (
        {"slot_ids": ints(0, 1, 2, 3, -4, 5, 10, 11, 12)},
        r"slot_ids\[4\] is -4",
    ),
    "slot beyond pool": ({"slot_ids": ints(0, 1, 2, 3, 4, 5, 10, 11, 64)}, "slots are 0 to 63"),
    "slot written twice": (
        {"slot_ids": ints(0, 1, 2, 3, 4, 5, 10, 11, 3)},
        "slot 3 is written by two rows",
    ),
    "row_starts empty": ({"row_starts": ints()}, "row_starts"),
    "row_starts of one": ({"row_starts": ints(0), "slot_starts": ints(0)}, "fewer than 2"),
    "row_starts from 1": ({"row_starts": ints(1, 4, 5)}, r"row_starts\[0\] is 1, not 0"),
    "sequence without rows": ({"row_starts": ints(0, 5, 5)}, "at least one row"),
    "row_starts descend": ({"row_starts": ints(0, 6, 5)}, "at least one row"),
    "row_starts too short": ({"row_starts": ints(0, 3, 4)}, "ends at 4, not at 5"),
    "row_starts too long": ({"row_starts": ints(0, 4, 1000)}, "ends at 1000"),
    "slot_starts too long": ({"slot_starts": ints(0, 6, 10)}, "slot_starts ends at 10"),
    "slot_starts below 0": ({"slot_starts": ints(0, -6, 9)}, "at least one row and one slot"),
    "slot_starts of other length": ({"slot_starts": ints(0, 9)}, "slot_starts 2"),
    "logit row below 0": ({"logit_rows": ints(-1, 2)}, r"logit_rows\[0\] is -1"),
    "logit row beyond rows": ({"logit_rows": ints(0, 5)}, "rows are 0 to 4"),
    "logit rows descend": ({"logit_rows": ints(3, 1)}, "must ascend"),
    "logit row twice": ({"logit_rows": ints(3, 3)}, "must ascend"),
    "wrong dtype": ({"token_ids": np.arange(5)}, "token_ids is int64"),
    "wrong shape": ({"positions": np.zeros((5, 1), np.int32)}, r"positions is int32 \(5, 1\)"),
    "a list": ({"logit_rows": [0]}, "flat int32 array"),
}


@pytest.mark.parametrize("name", BAD_STEPS)
def test_bad_step_is_refused_and_harms_nothing(name: str) -> None:
    executor = subject()
    executor.run(batch_of([([1, 2], 0, range(2)), ([7, 8], 0, [10, 11])]))
    change, message = BAD_STEPS[name]
    with pytest.raises(UserInputError, match=message):
        executor.run(replace(good_batch(), **change))  # type: ignore[arg-type]
    assert np.isfinite(executor.run(good_batch())).all()


def test_step_of_no_rows_or_too_many_is_refused() -> None:
    executor = subject()
    nothing = StepBatch(ints(), ints(), ints(0, 0), ints(), ints(0, 0), ints())
    with pytest.raises(UserInputError, match="0 rows; 1 to max_rows"):
        executor.run(nothing)
    with pytest.raises(UserInputError, match=r"21 rows; 1 to max_rows \(20\)"):
        executor.run(batch_of([([1] * 21, 0, range(21))]))


def test_sequence_beyond_the_context_is_refused() -> None:
    with pytest.raises(UserInputError, match="41 positions long; the model's context is 40"):
        subject().run(batch_of([([1] * 41, 40, range(41))]))


def test_strided_arrays_are_honoured() -> None:
    executor, batch = subject(), good_batch()
    want = executor.run(batch).copy()
    spread = np.repeat(batch.token_ids, 2)[::2]
    assert not spread.flags.c_contiguous
    np.testing.assert_array_equal(executor.run(replace(batch, token_ids=spread)), want)


def test_closed_executor_says_so() -> None:
    executor = subject()
    executor.close()
    executor.close()
    with pytest.raises(EngineClosedError):
        executor.run(good_batch())
    with pytest.raises(EngineClosedError):
        executor.memory_bytes()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"weights": "int3"},
            UnsupportedError,
            "weights is 'int3'; .* auto, int8, int4, bf16, f32",
        ),
        ({"kv_dtype": "int4"}, UnsupportedError, "kv_dtype is 'int4'"),
        ({"isa": "amx"}, UnsupportedError, "'amx' is not available .* auto, portable"),
        ({"num_threads": 0}, UserInputError, "num_threads is 0"),
        ({"num_threads": 1025}, UserInputError, "from 1 to 1024"),
        ({"num_threads": True}, UserInputError, "num_threads is True"),
        ({"num_slots": 0}, UserInputError, "num_slots is 0"),
        ({"num_slots": 2**31}, UserInputError, "num_slots is 2147483648"),
        ({"max_rows": 0}, UserInputError, "max_rows is 0"),
    ],
)
def test_bad_option_is_refused(
    options: dict[str, object], error: type[Exception], message: str
) -> None:
    plan = llama_like()
    with pytest.raises(error, match=message):
        native(plan, random_tensors(plan, 0), **options)


def test_isa_of_the_environment_is_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_ISA", "mmx")
    with pytest.raises(UnsupportedError, match="'mmx'"):
        subject()
    subject(isa=ISAS[0])  # an explicit choice wins
    for isa in ISAS:
        monkeypatch.setenv("ESPALIER_ISA", isa)
        assert subject().isa == isa
        assert subject().run(good_batch()).shape == (5, 97)
    monkeypatch.delenv("ESPALIER_ISA")
    assert subject().isa == ISAS[-1]


def test_threads_default_to_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_THREADS", "3")
    before = thread_ids()
    executor = subject(num_threads=None)
    helpers = threads_started_since(before, 2)
    assert len(helpers) == 2
    executor.close()
    assert have_left(helpers)


@pytest.mark.parametrize("given", ["0", "1025", "-1", "two", "1.5", " 2", "9" * 20, "9" * 5000])
def test_bad_number_of_threads_in_the_environment_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("ESPALIER_THREADS", given)
    with pytest.raises(
        UserInputError, match=r"ESPALIER_THREADS is .* from 1 to 1024 .* Unset it"
    ) as raised:
        subject(num_threads=None)
    assert len(str(raised.value)) < 200
    subject(num_threads=1)  # an explicit choice wins


def test_without_a_choice_every_usable_processor_has_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ESPALIER_THREADS", raising=False)
    before, num_helpers = thread_ids(), usable_processors() - 1
    executor = subject(num_threads=None)
    helpers = threads_started_since(before, num_helpers)
    assert len(helpers) == num_helpers
    assert not executor.thread_pool.is_crowded
    executor.close()
    assert have_left(helpers)


def test_there_are_no_more_threads_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ESPALIER_THREADS", raising=False)
    monkeypatch.setattr(native_module, "usable_processors", lambda: 5000)
    monkeypatch.setattr(settings, "MAX_THREADS", 3)
    executor = subject(num_threads=None)
    assert executor.thread_pool.num_threads == 3
    executor.close()


def test_threads_beyond_the_usable_processors_never_wait_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quota is not in the affinity: the executor tells its pool what is usable."""
    monkeypatch.setattr(native_module, "usable_processors", lambda: 2)
    assert subject(num_threads=3).thread_pool.is_crowded
    assert not subject(num_threads=2).thread_pool.is_crowded


def test_pool_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        CapacityError,
        match=r"needed .*kv_pool .*available.* Lower num_slots .* weights int4 or kv_dtype int8",
    ):
        native(llama_like(), random_tensors(llama_like(), 0), num_slots=2**31 - 2)
    monkeypatch.setattr(
        native_module, "require_memory", lambda *_: (_ for _ in ()).throw(CapacityError("none"))
    )
    with pytest.raises(CapacityError, match="none"):
        subject()


def test_logits_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    executor = subject()
    monkeypatch.setattr(native_module, "_LARGE_LOGITS_BYTES", 5 * 97 * 4)
    monkeypatch.setattr(memory, "available_bytes", lambda: 1000)
    with pytest.raises(CapacityError, match=r"logits .* Ask for the logits of fewer rows"):
        executor.run(good_batch())
    assert executor.run(replace(good_batch(), logit_rows=ints(4))).shape == (1, 97)


def test_sizes_beyond_64_bits_are_refused() -> None:
    plan = llama_like()
    layers = replace(plan, geometry=replace(plan.geometry, num_layers=10000, head_dim=1 << 31))
    with pytest.raises((CapacityError, UserInputError)):
        native(layers, random_tensors(plan, 0), num_slots=2**31 - 2)


def test_tensor_of_another_shape_is_refused() -> None:
    plan = llama_like()
    tensors = random_tensors(plan, 0)
    tensors.values["up"] = tensors.values["up"][:-1]
    with pytest.raises(ModelFileError, match=r"tensor up has the shape \(99, 72\); .*\(100, 72\)"):
        native(plan, tensors)


def test_truncated_tensor_is_refused() -> None:
    plan = llama_like()

    class Short(Tensors):
        def tensor(self, name):  # type: ignore[no-untyped-def]
            raw = super().tensor(name)
            return replace(raw, data=raw.data[:-4]) if name == "down" else raw

    with pytest.raises(ModelFileError, match=r"tensor down cannot be read: .*28800 bytes.*28796"):
        native(plan, Short(random_tensors(plan, 0).values))


X, H = "x", "h"
BAD_OPS: dict[str, tuple[tuple[ops.Op, ...], str]] = {
    "unknown buffer": ((ops.Add(X, "nowhere", X),), "names the buffer 'nowhere'"),
    "unknown weight": ((ops.Linear(X, "nothing", H),), "names the weight 'nothing'"),
    "unknown rope": ((ops.ApplyRope("q", 24, "spin"),), "names the rope 'spin'"),
    "read before written": ((ops.Add(X, H, X),), "read before it is written"),
    "width of norm": ((ops.RmsNorm(X, "k_bias", H, 1e-6),), "72 elements are needed"),
    "width of output": ((ops.Linear(X, "q", H),), "72 wide where 144 is needed"),
    "vector as matrix": ((ops.Linear(X, "norm1", H),), "used as a matrix"),
    "matrix as vector": ((ops.RmsNorm(X, "q", H, 1e-6),), "used as a vector"),
    "linear in place": ((ops.Linear(X, "square", X),), "writes the buffer that it reads"),
    "bias of other length": ((ops.Linear(X, "q", "q", bias="norm1"),), "144 elements are needed"),
    "heads that are not whole": ((ops.HeadNorm(X, "norm1", 50, 1e-6),), "no whole heads of 50"),
    "too many frequencies": ((ops.ApplyRope(X, 12, "rope"),), "too many for heads of 12"),
    "layer beyond": (
        (ops.Linear(X, "k", "k"), ops.KvWrite(2, "k", "k")),
        "layer 2 of 2",
    ),
    "layer below": ((ops.Linear(X, "k", "k"), ops.KvWrite(-1, "k", "k")), "layer -1 of 2"),
    "width of keys": ((ops.KvWrite(0, X, X),), "72 wide where 48 is needed"),
    "width of queries": ((ops.Attention(0, X, "a", 1.0),), "72 wide where 144 is needed"),
    "negative window": (
        (ops.Linear(X, "q", "q"), ops.Attention(0, "q", "a", 1.0, window=-1)),
        "a window is 0",
    ),
    "two selections": ((ops.SelectRows(X, H), ops.SelectRows(H, X)), "SelectRows comes twice"),
    "pool after selection": (
        (ops.SelectRows(X, H), ops.Linear(H, "k", "k"), ops.KvWrite(0, "k", "k")),
        "after SelectRows",
    ),
    "old rows after selection": ((ops.SelectRows(X, H), ops.Add(X, H, H)), "leaves one buffer"),
    "head before selection": ((ops.LmHead(X, "table"),), "LmHead comes before SelectRows"),
    "head of other width": ((ops.SelectRows(X, H), ops.LmHead(H, "up")), "each of 97 tokens"),
    "after the head": (
        (ops.SelectRows(X, H), ops.LmHead(H, "table"), ops.Add(H, H, H)),
        "after LmHead",
    ),
    "no head": ((ops.SelectRows(X, H),), "ends with LmHead"),
}


@pytest.mark.parametrize("name", BAD_OPS)
def test_plan_that_cannot_run_is_refused(name: str) -> None:
    operations, message = BAD_OPS[name]
    plan = llama_like()
    square = WeightSlot("square", (72, 72), "square")
    bad = replace(plan, ops=(ops.Embed("table", X), *operations), weights=(*plan.weights, square))
    with pytest.raises(UserInputError, match=message):
        native(bad, random_tensors(bad, 0))


def test_geometry_that_cannot_be_is_refused() -> None:
    plan = llama_like()
    for change in ({"num_kv_heads": 4}, {"head_dim": 0}, {"num_layers": -1}):
        bad = replace(plan, geometry=replace(plan.geometry, **change))
        with pytest.raises(UserInputError, match="the plan of llama-like cannot run"):
            native(bad, random_tensors(plan, 0))
    no_frequencies = replace(plan, ropes=(Rope("rope", (), RopeStyle.HALF),))
    with pytest.raises(UserInputError, match="at least one frequency"):
        native(no_frequencies, random_tensors(plan, 0))


def test_steps_from_many_threads_wait_for_each_other() -> None:
    plan = llama_like()
    executor = native(plan, random_tensors(plan, 1), num_threads=2)
    tokens = tokens_for(plan, 60)
    want = executor.run(batch_of([(tokens, 0, range(60))])).copy()

    def work(index: int) -> None:
        slots = range(60 * index, 60 * index + 60)
        for last in range(1, 60):
            executor.run(batch_of([(tokens[:last], last - 1, slots)], logit_rows=[]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index in range(4):
        got = executor.run(batch_of([(tokens, 59, range(60 * index, 60 * index + 60))]))
        np.testing.assert_array_equal(got[0], want[-1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_gets_an_error_and_ends() -> None:
    executor = subject(num_threads=2)
    executor.run(good_batch())
    child = os.fork()
    if child == 0:  # pragma: no cover
        status = 1
        try:
            executor.run(good_batch())
        except BackendError:
            executor.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert np.isfinite(executor.run(good_batch())).all()


def test_process_ends_in_silence_with_an_executor_still_open() -> None:
    script = (
        "from tests.exec.tiny_plans import *\n"
        "plan = llama_like()\n"
        "kept = native(plan, random_tensors(plan, 0), num_threads=3)\n"
        "logits = kept.run(batch_of([([1, 2, 3], 0, range(3))]))\n"
        "print(logits.shape)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "(3, 97)\n", "")


def test_make_executor_knows_its_kinds() -> None:
    plan = llama_like()
    options = ExecutorOptions(num_slots=8, num_threads=1, max_rows=8)
    tensors = random_tensors(plan, 0)
    assert isinstance(make_executor("native", plan, tensors, options), NativeExecutor)
    assert isinstance(make_executor("reference", plan, tensors, options), ReferenceExecutor)
    with pytest.raises(UserInputError, match="'torch' is unknown; allowed are native, reference"):
        make_executor("torch", plan, tensors, options)


def test_memory_bytes_counts_what_is_held() -> None:
    plan: Plan = llama_like()
    executor = native(plan, random_tensors(plan, 0), weights="f32", num_slots=100, max_rows=10)
    held = executor.memory_bytes()
    assert held["kv_pool"] == 2 * 2 * 100 * 48 * 4
    matrices = 112 * 72 + 2 * 144 * 72 + 2 * 48 * 72 + 80 * 144  # outputs padded to 16
    assert held["weights"] >= 4 * (matrices - 144 * 72)
    assert held["scratch"] > 0
    int8 = native(plan, random_tensors(plan, 0), weights="int8", num_slots=100, max_rows=10)
    assert int8.memory_bytes()["kv_pool"] == held["kv_pool"] // 2
    assert int8.memory_bytes()["weights"] < held["weights"] / 2
