"""The native thread pool: every chunk once, errors, sleep, and others that want the processor."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.exec.native_threads import Busy, have_left, thread_ids, threads_started_since

from espalier._native import ThreadPool, multiply_rates, read_bandwidth
from espalier.exec.processors import usable_processors


def pool_of(num_threads: int) -> ThreadPool:
    return ThreadPool(num_threads, usable_processors())


@pytest.mark.parametrize("num_threads", [-1, 0, 1025])
def test_number_of_threads_is_checked(num_threads: int) -> None:
    with pytest.raises(ValueError, match=rf"num_threads is {num_threads}; 1 to 1024"):
        pool_of(num_threads)


@given(num_threads=st.integers(1, 9), sizes=st.lists(st.integers(0, 300), max_size=20))
@settings(max_examples=40, deadline=None)
def test_every_chunk_runs_once(num_threads: int, sizes: list[int]) -> None:
    pool = pool_of(num_threads)
    for size in sizes:
        assert pool.count_runs(size) == [1] * size


@given(num_threads=st.integers(1, 6), size=st.integers(1, 50), data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_failing_chunk_raises_and_the_pool_goes_on(
    num_threads: int, size: int, data: st.DataObject
) -> None:
    pool = pool_of(num_threads)
    failing = data.draw(st.integers(0, size - 1))
    with pytest.raises(ValueError, match="this chunk fails"):
        pool.count_runs(size, failing)
    assert pool.count_runs(size) == [1] * size


def test_many_short_loops_with_more_threads_than_processors() -> None:
    pool = pool_of(3 * len(os.sched_getaffinity(0)) + 1)
    assert pool.loop_seconds(2_000, 5) > 0
    assert pool.count_runs(1_000) == [1] * 1_000


def test_ended_helpers_leave_the_calling_thread() -> None:
    before = thread_ids()
    pool = pool_of(4)
    helpers = threads_started_since(before, 3)
    assert len(helpers) == 3
    pool.end_helpers()
    assert have_left(helpers)
    assert pool.count_runs(40) == [1] * 40
    pool.end_helpers()


def test_loops_of_several_callers_wait_for_each_other() -> None:
    pool = pool_of(3)
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
    pool = pool_of(4)
    for _ in range(3):
        pool.count_runs(100)
        start = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - start < 0.05  # a waiting thread would take up to 0.3


def test_python_gets_the_processor_while_every_one_computes() -> None:
    """The loop ends only when the interpreter's thread has run 50 times; else this would hang."""
    pool = pool_of(len(os.sched_getaffinity(0)))
    with Busy(pool) as busy:
        for _ in range(50):
            time.sleep(0.001)
            assert busy.thread.is_alive()
    assert busy.counts == [pool.num_threads]


def test_a_pool_whose_helpers_have_ended_computes_on_the_calling_thread() -> None:
    pool = pool_of(3)
    pool.end_helpers()
    with Busy(pool) as busy:
        pass
    assert busy.counts == [1]
    assert read_bandwidth(pool, 1 << 20, 1) > 0


@pytest.mark.parametrize(
    ("num_threads", "num_processors", "is_crowded"),
    [(1, 1, False), (2, 1, True), (2, 2, False), (3, 2, True), (2, 64, False)],
)
def test_threads_are_crowded_where_they_share_processors(
    num_threads: int, num_processors: int, is_crowded: bool
) -> None:
    pool = ThreadPool(num_threads, num_processors)
    assert pool.is_crowded is is_crowded
    assert pool.count_runs(100) == [1] * 100


_FORKED = """
import os, sys, warnings
from espalier._native import ThreadPool
warnings.simplefilter("ignore", DeprecationWarning)
pool = ThreadPool(3, 3)
pool.count_runs(10)
if os.fork() == 0:
    try:
        pool.count_runs(10)
    except RuntimeError as error:
        assert "another process" in str(error)
        pool.end_helpers()  # must not wait for threads that are not here
        pool.end_helpers()
        del pool
        os._exit(7)
    os._exit(1)
sys.exit(0 if os.waitstatus_to_exitcode(os.wait()[1]) == 7 else 1)
"""


def test_a_forked_process_is_told() -> None:
    subprocess.run([sys.executable, "-c", _FORKED], check=True, timeout=60)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@pytest.mark.parametrize("ends_first", [False, True])
def test_a_process_forked_while_the_pool_computes_can_end_it(ends_first: bool) -> None:
    """Whoever holds the pool is not in the child, so nobody there would ever let go of it."""
    pool = pool_of(3)
    with Busy(pool):
        child = os.fork()
        if child == 0:  # pragma: no cover
            signal.alarm(30)
            if ends_first:
                pool.end_helpers()
            refused = [refuses(lambda: read_bandwidth(pool, 1 << 20, 1))]
            refused.append(refuses(lambda: multiply_rates(pool)))
            refused.append(refuses(lambda: pool.count_runs(2)))
            pool.end_helpers()
            os._exit(0 if all(refused) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def refuses(call: Callable[[], object]) -> bool:
    try:
        call()
    except RuntimeError as error:
        return "another process" in str(error)
    return False
