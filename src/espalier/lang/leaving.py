"""What the end of a `with` block waits for: until what it has cancelled is gone.

The wait is bounded: a body that sleeps, or computes, cannot be stopped from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeVar

from espalier.lang.program import may_not_block
from espalier.lang.promise import Promise

L = TypeVar("L", bound="Leaves")
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


class Leaves:
    """A `with` block, or `async with`: at its end, what has not finished is cancelled."""

    def _cancel_unfinished(self) -> list[Promise[None]]:
        """Cancels it; the promises are done once it is gone."""
        raise NotImplementedError

    def __enter__(self: L) -> L:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        wait_for(self._cancel_unfinished())

    async def __aenter__(self: L) -> L:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await wait_for_async(self._cancel_unfinished())
