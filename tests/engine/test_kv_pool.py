from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.engine.kv_pool import KvPool
from espalier.errors import UserInputError


def test_alloc_gives_ascending_slots_from_a_fresh_pool() -> None:
    pool = KvPool(8)
    first, second = pool.alloc(3), pool.alloc(2)
    assert first is not None
    assert second is not None
    assert first.tolist() == [0, 1, 2]
    assert second.tolist() == [3, 4]
    assert pool.num_free == 3


def test_alloc_gives_none_and_keeps_the_slots_when_too_many_are_asked() -> None:
    pool = KvPool(4)
    assert pool.alloc(5) is None
    assert pool.num_free == 4
    assert pool.alloc(0) is not None


@pytest.mark.parametrize(
    ("slots", "message"),
    [([0, 0], "twice"), ([3], "twice"), ([-1], "outside"), ([4], "outside")],
)
def test_free_refuses_slots_that_are_not_given(slots: list[int], message: str) -> None:
    pool = KvPool(4)
    assert pool.alloc(2) is not None
    with pytest.raises(ValueError, match=message):
        pool.free(np.array(slots, dtype=np.int32))
    pool.check_invariants()
    assert pool.num_free == 2


def test_pool_refuses_a_size_below_one() -> None:
    with pytest.raises(UserInputError, match="at least 1"):
        KvPool(0)


@given(st.lists(st.integers(-5, 6), max_size=40))
def test_pool_never_gives_a_slot_twice(moves: list[int]) -> None:
    """Positive: take that many; negative: give back that many of the oldest."""
    pool = KvPool(16)
    held: list[int] = []
    for move in moves:
        if move >= 0:
            taken = pool.alloc(move)
            assert (taken is None) == (move > 16 - len(held))
            held += [] if taken is None else taken.tolist()
        else:
            returned, held = held[:-move], held[-move:]
            pool.free(np.array(returned, dtype=np.int32))
        pool.check_invariants()
        assert len(set(held)) == len(held)
        assert sorted(held + pool.free_slot_ids().tolist()) == list(range(16))
