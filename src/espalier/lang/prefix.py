"""The prompt that forks share, computed once before the first of them calls the model.

The paper's "frontend hint" (section 4.2): each branch then finds the prompt in the cache, also
where they are sent at the same moment. The request is the language's own and nobody's call, so it
adds no prompt tokens to the usage: the first branch answers for what it computed.
"""

from __future__ import annotations

import asyncio

from espalier.lang.failure import Failure, described
from espalier.lang.program import ActiveStream, Program, call_slots
from espalier.lang.recording import CallRecorder
from espalier.types import Prompt, Usage


class SharedPrefix(ActiveStream):
    """Prefills a prompt when a fork first needs it, after the one that it extends, if any.

    Used on the loop's thread.
    """

    __slots__ = ("_after", "_num_computed", "_program", "_prompt", "_record", "_task")

    def __init__(
        self,
        program: Program,
        prompt: Prompt,
        after: SharedPrefix | None,
        record: CallRecorder | None = None,
    ) -> None:
        self._after = after
        self._record = record
        self._program = program
        self._num_computed = 0  # prompt tokens that no branch has answered for
        self._prompt = prompt
        self._task: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        """Returns once the prompt is cached (or could not be)."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._fill())
            self._program.stream_started(self)
        if not self._task.done():
            await asyncio.wait({self._task})  # unlike awaiting the task, this does not cancel it

    def settle(self, usage: Usage) -> None:
        """Counts tokens that were computed here as computed in a branch's usage, not as cached."""
        moved = min(self._num_computed, usage.cached_tokens)
        self._num_computed -= moved
        usage.cached_tokens -= moved
        usage.computed_tokens += moved

    def take_computed(self) -> int:
        """Leaves what was computed for a longer prefix to answer for."""
        num_computed, self._num_computed = self._num_computed, 0
        return num_computed

    def stop(self, failure: Failure) -> None:
        """Cancels the prefill."""
        assert self._task is not None
        self._task.cancel()

    async def _fill(self) -> None:
        backend, record = self._program.backend, self._record
        try:
            if self._after is not None:
                await self._after.ready()
                self._num_computed = self._after.take_computed()
                self._after = None
            if record is not None:
                record.started(self._prompt)
            async with call_slots(backend):
                if record is not None:
                    record.sent()
                usage = await backend.prefill(self._prompt)
            if record is not None:
                record.answered(usage, backend)
                record.prefilled(usage)
            self._num_computed += usage.computed_tokens
        except Exception as error:
            # Only a hint: whatever is wrong with the prompt, each fork's own call will say so.
            if record is not None:
                record.failed(described(error), is_cancelled=False)
            return
        finally:
            self._program.stream_stopped(self)
