"""A request inside the engine: its tokens, its place in the KV pool, its progress.

A record that the scheduler, the KV space and the step results write to, each to its own fields.
It decides nothing.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from espalier.constrain.guide import Guide
from espalier.engine.output_text import OutputText
from espalier.engine.radix_node import PrefixCursor, RadixNode
from espalier.engine.request import EngineRequest, LogprobTable, RequestOutput
from espalier.engine.sampler_rows import SampleRow
from espalier.exec.executor import Int32Array
from espalier.types import FinishReason, TokenLogprob

_NO_SLOTS: Int32Array = np.empty(0, dtype=np.int32)
NO_LIMIT = 2**62


class RequestState:
    """One request from submission to end. `arrival` numbers requests in order of submission."""

    def __init__(
        self,
        request: EngineRequest,
        *,
        text: OutputText,
        end_ids: frozenset[int],
        never_ids: frozenset[int] = frozenset(),
        guide: Guide | None,
        jumps: bool,
        submitted_at: float,
        is_streamed: bool,
    ) -> None:
        self.request = request
        self.text = text
        self.end_ids = end_ids  # tokens that end the output
        self.never_ids = never_ids  # tokens that may not be chosen
        self.guide = guide
        self.jumps = jumps  # forced tokens are computed together
        self.planned: deque[int] = deque()  # forced tokens that come one by one
        self.num_dropped = 0  # forced tokens after the end of the output
        self.next_position = 0  # of the next choice, at least: each has a random number of its own
        self.is_streamed = is_streamed
        self.token_ids: Int32Array = np.array(request.input_ids, dtype=np.int32)  # with spare room
        self.num_prompt = len(self.token_ids)
        self.num_tokens = self.num_prompt
        self.output_ids: list[int] = []

        # Waiting: the scheduler's.
        self.arrival = -1
        self.arrival_step = -1
        self.num_passed_over = 0  # admissions of later arrivals
        self.leader: RequestState | None = None  # whose prefix it waits for
        self.cursor: PrefixCursor | None = None

        # Running: the KV space's. Slots [0, num_shared) are the tree's, the rest its own.
        self.node: RadixNode | None = None
        self.slot_ids = _NO_SLOTS  # with spare room
        self.num_shared = 0
        self.num_allocated = 0
        self.num_computed = 0
        self.num_to_prefill = 0  # tokens that it had to compute when it was admitted
        self.num_valid = NO_LIMIT  # leading tokens that are the same as when they were computed

        # Results.
        self.sample_row = SampleRow(
            request.sampling,
            request.seed,
            self.num_prompt,
            want_logprob=request.return_logprob,
            top_logprobs_num=request.top_logprobs_num if request.return_logprob else 0,
            token_ids_logprob=request.token_ids_logprob if request.return_logprob else (),
        )
        self.input_logprobs: LogprobTable | None = None
        self.output_logprobs: LogprobTable | None = None
        # Tokens next_scored .. scored_end - 1 get their logprob from the rows before them.
        self.next_scored = self.scored_end = self.num_prompt
        self.final_reason: FinishReason | None = None  # set while logprobs are missing at the end
        if request.return_logprob:
            self._begin_logprobs()

        # Accounting; seconds of one monotonic clock.
        self.num_cached = 0
        self.num_retractions = 0
        self.submitted_at = submitted_at
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None

    def _begin_logprobs(self) -> None:
        self.output_logprobs = LogprobTable()
        start = self.request.logprob_start_len
        if start < 0:
            return
        self.input_logprobs = LogprobTable()
        self.next_scored = start
        if start == 0:  # nothing comes before the first token, so it has no probability
            self.input_logprobs.tokens.append(TokenLogprob(None, self.request.input_ids[0]))
            self.input_logprobs.top.append([])
            self.input_logprobs.chosen_ids.append([])
            self.next_scored = 1

    @property
    def match_limit(self) -> int:
        """Most leading tokens that may come from the cache.

        The last token is always computed, for its logits; and so is all from the position before
        the first token whose logprob is missing.
        """
        limit = self.num_wanted - 1
        if self.is_scoring:
            limit = min(limit, max(self.next_scored - 1, 0))
        return limit

    @property
    def is_scoring(self) -> bool:
        """True while the logprob of a token that was not sampled is missing."""
        return self.next_scored < self.scored_end

    @property
    def num_wanted(self) -> int:
        """Tokens whose rows are to be computed: all, but the last where nothing follows it.

        At least one, so that a request whose output is empty from the start takes a step as well.
        """
        return max(1, self.num_tokens - (self.final_reason is not None))

    @property
    def num_reusable(self) -> int:
        """Leading tokens whose rows need not be computed again before the next token."""
        count = min(self.num_valid, self.num_wanted - 1)
        return min(count, self.next_scored - 1) if self.is_scoring else count

    @property
    def is_prefilling(self) -> bool:
        """True while tokens that it had at its admission are not computed."""
        return self.num_computed < self.num_to_prefill

    @property
    def num_new_left(self) -> int:
        """Tokens that it may still generate."""
        return self.request.sampling.max_new_tokens - len(self.output_ids)

    @property
    def num_forced(self) -> int:
        """Output tokens that the model was not asked for."""
        if self.guide is None:
            return 0
        return max(0, self.guide.num_forced - len(self.planned) - self.num_dropped)

    @property
    def forced_spans(self) -> tuple[tuple[int, int], ...]:
        """(start, end) in the output of tokens that the model was not asked for.

        Where tokens were put together anew later on, a span may hold more or fewer of them.
        """
        if self.guide is None:
            return ()
        spans: list[tuple[int, int]] = []
        at = 0
        for start, end in self.guide.forced_spans:
            start, end = max(start, at), min(end, len(self.output_ids))  # noqa: PLW2901
            if start < end:
                spans.append((start, end))
                at = end
        return tuple(spans)

    def take_back(self, num_tokens: int) -> None:
        """Takes back the last output tokens, but not their text (see OutputText)."""
        if num_tokens == 0:
            return
        self.num_tokens -= num_tokens
        self.num_valid = min(self.num_valid, self.num_tokens)
        del self.output_ids[-num_tokens:]
        self.text.take_back(num_tokens)
        if self.output_logprobs is not None:
            self.output_logprobs.cut(len(self.output_ids))
            self.next_scored = self.scored_end = self.num_tokens

    def append(self, token_id: int) -> None:
        """Adds an output token."""
        if self.num_tokens == len(self.token_ids):
            room = min(self.num_new_left, max(64, self.num_tokens // 2))
            self.token_ids = np.concatenate((self.token_ids, np.empty(room, dtype=np.int32)))
        self.token_ids[self.num_tokens] = token_id
        self.num_tokens += 1
        self.output_ids.append(token_id)

    def snapshot(self, now: float, reason: FinishReason | None = None) -> RequestOutput:
        """What the caller sees: so far, or at the end with a reason. Lists are copies."""
        is_end = reason is not None
        return RequestOutput(
            request_id=self.request.request_id,
            text=self.text.text,
            output_ids=self.output_ids.copy(),
            text_token_ids=self.text.text_token_ids(),
            finish_reason=reason,
            prompt_tokens=self.num_prompt,
            cached_tokens=self.num_cached,
            forced_tokens=self.num_forced,
            forced_spans=self.forced_spans if is_end else (),
            retractions=self.num_retractions,
            input_logprobs=_copied(self.input_logprobs),
            output_logprobs=_copied(self.output_logprobs),
            ttft_s=_since(self.submitted_at, self.first_token_at),
            e2e_s=now - self.submitted_at if is_end else None,
            queue_s=_since(self.submitted_at, self.admitted_at),
        )


def _since(start: float, end: float | None) -> float | None:
    return None if end is None else end - start


def _copied(table: LogprobTable | None) -> LogprobTable | None:
    if table is None:
        return None
    return LogprobTable(table.tokens.copy(), table.top.copy(), table.chosen_ids.copy())
