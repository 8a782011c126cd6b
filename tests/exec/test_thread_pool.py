"""The native thread pool: every chunk once, errors, sleep, and others that want the processor."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier._native import ThreadPool


@pytest.mark.parametrize("num_threads", [-1, 0, 1025])
def test_number_of_threads_is_checked(num_threads: int) -> None:
    with pytest.raises(ValueError, match=rf"num_threads is {num_threads}; 1 to 1024"):
        ThreadPool(num_threads)


@given(num_threads=st.integers(1, 9), sizes=st.lists(st.integers(0, 300), max_size=20))
@settings(max_examples=40, deadline=None)
def test_every_chunk_runs_once(num_threads: int, sizes: list[int]) -> None:
    pool = ThreadPool(num_threads)
    for size in sizes:
        assert pool.count_runs(size) == [1] * size


@given(num_threads=st.integers(1, 6), size=st.integers(1, 50), data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_failing_chunk_raises_and_the_pool_goes_on(
    num_threads: int, size: int, data: st.DataObject
) -> None:
    pool = ThreadPool(num_threads)
    failing = data.draw(st.integers(0, size - 1))
    with pytest.raises(ValueError, match="this chunk fails"):
        pool.count_runs(size, failing)
    assert pool.count_runs(size) == [1] * size


def test_many_short_loops_with_more_threads_than_processors() -> None:
    pool = ThreadPool(3 * len(os.sched_getaffinity(0)) + 1)
    assert pool.loop_seconds(2_000, 5) > 0
    assert pool.count_runs(1_000) == [1] * 1_000


def test_ended_helpers_leave_the_calling_thread() -> None:
    before = len(os.listdir("/proc/self/task"))
    pool = ThreadPool(4)
    assert len(os.listdir("/proc/self/task")) == before + 3
    pool.end_helpers()
    assert len(os.listdir("/proc/self/task")) == before
    assert pool.count_runs(40) == [1] * 40
    pool.end_helpers()


def test_loops_of_several_callers_wait_for_each_other() -> None:
    pool = ThreadPool(3)
    results: list[list[int]] = []

    def call() -> None:
        results.extend(pool.count_runs(64) for _ in range(200))

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [[1] * 64] * 800


def test_idle_threads_use_no_processor_time() -> None:
    pool = ThreadPool(4)
    for _ in range(3):
        pool.count_runs(100)
        start = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - start < 0.05  # a waiting thread would take up to 0.3


def test_python_gets_the_processor_while_every_one_computes() -> None:
    """The loop ends only when the interpreter's thread has run 50 times; else this would hang."""
    pool = ThreadPool(len(os.sched_getaffinity(0)))
    flag = np.zeros(1, np.uint8)
    counts: list[int] = []
    native = threading.Thread(target=lambda: counts.append(pool.compute_until(flag)), daemon=True)
    native.start()
    for _ in range(50):
        time.sleep(0.001)
        assert native.is_alive()
    flag[0] = 1
    native.join(60)
    assert counts == [pool.num_threads]


_FORKED = """
import os, sys, warnings
from espalier._native import ThreadPool
warnings.simplefilter("ignore", DeprecationWarning)
pool = ThreadPool(3)
pool.count_runs(10)
if os.fork() == 0:
    try:
        pool.count_runs(10)
    except RuntimeError as error:
        assert "another process" in str(error)
        del pool  # must not wait for threads that are not here
        os._exit(7)
    os._exit(1)
sys.exit(0 if os.waitstatus_to_exitcode(os.wait()[1]) == 7 else 1)
"""


def test_a_forked_process_is_told() -> None:
    subprocess.run([sys.executable, "-c", _FORKED], check=True, timeout=60)
