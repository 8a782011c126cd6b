"""The prompt that forks share, computed once before the first of them calls the model.

The paper's "frontend hint" (section 3): without it, branches that are sent at the same moment would
each compute it.
"""

from __future__ import annotations

import asyncio

from espalier.errors import EspalierError
from espalier.lang.failure import Failure
from espalier.lang.program import ActiveStream, Program, call_slots
from espalier.lang.usage import UsageNode
from espalier.types import Prompt


class SharedPrefix(ActiveStream):
    """Prefills a prompt when a fork first needs it, after the one that it extends, if any.

    Used on the loop's thread.
    """

    __slots__ = ("_after", "_node", "_program", "_prompt", "_task")

    def __init__(
        self, program: Program, node: UsageNode, prompt: Prompt, after: SharedPrefix | None
    ) -> None:
        self._after = after
        self._program = program
        self._node = node
        self._prompt = prompt
        self._task: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Returns once the prompt is cached (or could not be)."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._fill())
            self._program.stream_started(self)
        if not self._task.done():
            await asyncio.wait({self._task})  # unlike awaiting the task, this does not cancel it

    def stop(self, failure: Failure) -> None:
        """Cancels the prefill."""
        assert self._task is not None
        self._task.cancel()

    async def _fill(self) -> None:
        backend = self._program.backend
        try:
            if self._after is not None:
                await self._after.ready()
                self._after = None
            async with call_slots(backend):
                usage = await backend.prefill(self._prompt)
            self._program.record(self._node, usage)
        except EspalierError:
            # Only a hint: whatever is wrong with the prompt, each fork's own call will say so.
            return
        finally:
            self._program.stream_stopped(self)
