"""The KV pool's bookkeeping: which token slots are free.

It owns slot ids and nothing else: who uses a slot, and the arrays behind it, it must not know.
"""

from __future__ import annotations

import numpy as np

from espalier.errors import UserInputError
from espalier.exec.executor import Int32Array


class KvPool:
    """Hands out token slots `0 .. num_slots - 1`; each is free or given to somebody.

    Raises UserInputError for a size below one.
    """

    def __init__(self, num_slots: int) -> None:
        if num_slots < 1:
            raise UserInputError(f"num_slots is {num_slots}; a pool has at least 1 slot.")
        self.num_slots = num_slots
        # A stack whose top is at num_free; low ids lie on top, so that a fresh pool gives 0, 1, ...
        self._stack: Int32Array = np.arange(num_slots - 1, -1, -1, dtype=np.int32)
        self._is_free = np.ones(num_slots, dtype=np.bool_)
        self._num_free = num_slots

    @property
    def num_free(self) -> int:
        """Slots that nobody holds."""
        return self._num_free

    def alloc(self, count: int) -> Int32Array | None:
        """Takes `count` slots, `[count]`, which the caller owns; None where fewer are free."""
        if count > self._num_free:
            return None
        rest = self._num_free - count
        slot_ids: Int32Array = self._stack[rest : self._num_free][::-1].copy()
        self._is_free[slot_ids] = False
        self._num_free = rest
        return slot_ids

    def free(self, slot_ids: Int32Array) -> None:
        """Takes slots back. Raises ValueError, and changes nothing, for one that is free."""
        count = len(slot_ids)
        if count == 0:
            return
        if slot_ids.min() < 0 or slot_ids.max() >= self.num_slots:
            raise ValueError(f"slot ids outside 0..{self.num_slots - 1} were freed: {slot_ids}")
        if self._is_free[slot_ids].any():
            raise ValueError(f"slots were freed twice: {slot_ids[self._is_free[slot_ids]]}")
        self._is_free[slot_ids] = True
        if self._num_free + count > self.num_slots or (
            count > 1 and len(np.unique(slot_ids)) != count
        ):
            self._is_free[slot_ids] = False
            raise ValueError(f"a slot occurs twice among those freed: {slot_ids}")
        self._stack[self._num_free : self._num_free + count] = slot_ids[::-1]
        self._num_free += count

    def check_invariants(self) -> None:
        """Raises AssertionError unless stack, flags and count agree."""
        free = self._stack[: self._num_free]
        assert len(np.unique(free)) == self._num_free, "a free slot is listed twice"
        assert bool(self._is_free[free].all()), "a slot is listed as free and is not"
        assert int(self._is_free.sum()) == self._num_free, "a free slot is not listed"

    def free_slot_ids(self) -> Int32Array:
        """The free slots, `[num_free]`, in no order; for checks."""
        slot_ids: Int32Array = self._stack[: self._num_free].copy()
        return slot_ids
