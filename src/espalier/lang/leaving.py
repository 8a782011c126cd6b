"""What the end of a `with` block waits for: until what it has cancelled is gone.

The wait is bounded: a body that sleeps, or computes, cannot be stopped from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Any

from espalier.lang.program import may_not_block
from espalier.lang.promise import Promise

MAX_WAIT_S = 5.0


def wait_for(ends: Sequence[Promise[Any]]) -> None:
    """Blocks until all are done, at most 5 seconds; not at all where that would stop a loop."""
    if may_not_block():
        return
    deadline = time.monotonic() + MAX_WAIT_S
    for end in ends:
        end.done_within(deadline - time.monotonic())


async def wait_for_async(ends: Sequence[Promise[Any]]) -> None:
    """`wait_for`, awaited."""

    async def all_done() -> None:
        for end in ends:
            await end.wait_async()

    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(all_done(), MAX_WAIT_S)
