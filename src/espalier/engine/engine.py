"""The step loop: requests in, tokens out. Start reading at `EngineCore.step`.

It ties scheduler, executor and sampler together and owns the table of live requests. It is used
by one thread at a time, knows no threads or event loops (async_engine.py does), and never touches
a KV array.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.constrain.canonical import CanonicalTokenizer
from espalier.constrain.dtype import dtype_stops
from espalier.constrain.guide import Guide
from espalier.constraint import Constraint, ConstraintKind
from espalier.engine.batch import LogitSpan, build_batch
from espalier.engine.constraints import Constraints
from espalier.engine.kv_space import KvSpace
from espalier.engine.options import EngineOptions
from espalier.engine.output_text import DecodingTokenizer, OutputText
from espalier.engine.request import EngineEvent, EngineRequest, RequestFailure
from espalier.engine.request_state import RequestState
from espalier.engine.scheduler import Chunk, Scheduler
from espalier.engine.stats import EngineStats, EngineTotals
from espalier.engine.step_results import (
    TokenSampler,
    sample_tokens,
    score_tokens,
    start_output,
    take_token,
    wanted_tokens,
)
from espalier.engine.validation import check_request
from espalier.errors import (
    BackendError,
    EspalierError,
    RequestCancelledError,
    UserInputError,
)
from espalier.exec.executor import Executor, Float32Array, StepBatch
from espalier.types import FinishReason, SamplingParams


class EngineTokenizer(DecodingTokenizer, CanonicalTokenizer, Protocol):
    """The part of a tokenizer that an engine needs."""


class EngineCore:
    """Runs requests on an executor, many at a time.

    Args:
        executor: computes the steps; it is closed with the engine.
        tokenizer: gives the text of tokens and says which end a text.
        sampler: chooses tokens.
        options: limits and policies.
    """

    def __init__(
        self,
        executor: Executor,
        tokenizer: EngineTokenizer,
        sampler: TokenSampler,
        options: EngineOptions,
    ) -> None:
        if options.num_slots > executor.num_slots:
            raise UserInputError(
                f"num_slots is {options.num_slots}; the executor's pool has {executor.num_slots}."
            )
        self.options = options
        self.executor = executor
        self._tokenizer = tokenizer
        self._sampler = sampler
        self._vocab_size = executor.plan.geometry.vocab_size
        self._known_tokens = _known_tokens(tokenizer.vocab_size, self._vocab_size)
        self.constraints = Constraints(tokenizer, self._vocab_size)
        self._space = KvSpace(options.num_slots, options.prefix_cache)
        self._scheduler = Scheduler(options, self._space)
        self._states: dict[str, RequestState] = {}
        self._events: list[EngineEvent] = []
        self._totals = EngineTotals()

    @property
    def has_work(self) -> bool:
        """True while a request waits or runs."""
        return bool(self._states)

    def prepare(self, request: EngineRequest, is_streamed: bool = False) -> RequestState:
        """Checks a request and makes its state. Any thread may call it: nothing is changed.

        A constraint that is new is compiled, which may take a while: see `constraints`.
        Raises PromptError, SamplingError, UnsupportedError, UserInputError, or CapacityError for
        a request that would not fit even alone.
        """
        num_known = min(self._tokenizer.vocab_size, self._vocab_size)
        check_request(request, self.options, num_known)
        end_ids, never_ids = self._end_ids(request)
        state = RequestState(
            request,
            text=OutputText(self._tokenizer, _shown(request), _cuts(request.constraint)),
            end_ids=end_ids,
            never_ids=never_ids,
            guide=self._guide(request),
            jumps=self.options.jump_forward,
            submitted_at=time.monotonic(),
            is_streamed=is_streamed,
        )
        start_output(state)
        return state

    def _end_ids(self, request: EngineRequest) -> tuple[frozenset[int], frozenset[int]]:
        """Tokens that end the output, and tokens that may not come.

        Where ends of text are ignored, text goes on after them; but nothing may follow them in a
        form.
        """
        end_ids, eos_ids = frozenset(request.sampling.stop_token_ids), self._tokenizer.eos_ids
        if not request.sampling.ignore_eos:
            return end_ids.union(eos_ids), frozenset()
        return end_ids, frozenset(() if request.constraint is None else eos_ids)

    def _guide(self, request: EngineRequest) -> Guide | None:
        if request.constraint is None:
            return None
        return self.constraints.guide(
            request.constraint, request.sampling.max_new_tokens, self.options.canonical
        )

    def add(self, state: RequestState) -> None:
        """Queues a prepared request. Raises CapacityError when the queue is full."""
        request_id = state.request.request_id
        if request_id in self._states:
            raise UserInputError(f"a request with the id {request_id!r} runs already.")
        self._scheduler.add(state)
        self._states[request_id] = state

    def add_request(self, request: EngineRequest, is_streamed: bool = False) -> None:
        """Checks and queues a request; a streamed one gives an event for each token."""
        self.add(self.prepare(request, is_streamed))

    def cancel(self, request_id: str) -> bool:
        """Ends a request; false if there is none such. The next step gives its failure."""
        state = self._states.get(request_id)
        if state is None:
            return False
        self._end(state, RequestCancelledError(f"the request {request_id} was cancelled."))
        return True

    def step(self) -> list[EngineEvent]:
        """Admits, computes one batch, samples, finishes. Returns what became of requests."""
        self._admit()
        chunks = self._scheduler.next_chunks()
        if chunks:
            batch, spans = build_batch(chunks, wanted_tokens(chunks))
            logits = self._run(batch, chunks)
            if logits is not None:
                self._advance(chunks)
                self._score_tokens(logits, spans)
                self._sample(logits, spans)
        return self.take_events()

    def take_events(self) -> list[EngineEvent]:
        """Events since the last step, such as cancellations between steps."""
        events, self._events = self._events, []
        return events

    def flush_cache(self) -> bool:
        """Empties the prefix cache of all that no request uses; true if it is empty now."""
        return self._space.flush()

    def fail_all(self, make_error: Callable[[str], EspalierError]) -> list[EngineEvent]:
        """Ends every request with the error that is made for its id."""
        for request_id, state in list(self._states.items()):
            self._end(state, make_error(request_id))
        return self.take_events()

    def stats(self) -> EngineStats:
        """What waits, runs and is held now."""
        space, scheduler = self._space, self._scheduler
        num_free, num_evictable = space.pool.num_free, space.cache.num_evictable
        return EngineStats(
            waiting=len(scheduler.waiting),
            running=len(scheduler.running),
            slots_total=space.pool.num_slots,
            slots_free=num_free,
            slots_evictable=num_evictable,
            slots_locked=space.pool.num_slots - num_free - num_evictable,
            cache_nodes=space.cache.num_nodes,
            totals=replace(self._totals, retractions=scheduler.num_retractions),
        )

    def close(self) -> None:
        """Frees the executor. Requests that are left get no event: use `fail_all` before."""
        self.executor.close()

    def check_invariants(self) -> None:
        """Raises AssertionError unless requests, lists, tree and pool agree, slot by slot."""
        scheduler = self._scheduler
        scheduler.check_invariants()
        live = {*scheduler.waiting, *scheduler.running}
        assert live == set(self._states.values()), "a request is lost, or not removed"

    def _admit(self) -> None:
        for state in self._scheduler.admit(time.monotonic()):
            if state.num_retractions == 0:
                self._totals.prompt_tokens += state.num_prompt
                self._totals.cached_tokens += state.num_cached

    def _run(self, batch: StepBatch, chunks: Sequence[Chunk]) -> Float32Array | None:
        self._totals.steps += 1
        try:
            logits = self.executor.run(batch)
        except Exception as error:
            for chunk in chunks:
                # Nothing of this chunk is committed: its slots may hold anything.
                failure = BackendError(f"the executor failed with {type(error).__name__}: {error}")
                failure.__cause__ = error
                self._end(chunk.state, failure)
            return None
        self._totals.computed_rows += batch.num_rows
        return logits

    def _advance(self, chunks: Sequence[Chunk]) -> None:
        """Counts the rows as computed and lets others use those of prompts at once."""
        for chunk in chunks:
            state = chunk.state
            is_prefill = state.is_prefilling
            state.num_computed = chunk.end
            if is_prefill:
                self._space.commit(state)

    def _score_tokens(self, logits: Float32Array, spans: Sequence[LogitSpan]) -> None:
        """Writes logprobs of given tokens; ends requests that want no new token."""
        for span in spans:
            state = span.chunk.state
            error = score_tokens(self._sampler, logits, span) if span.num_scored else None
            if error is not None:
                self._end(state, error)
            elif state.final_reason is not None:
                if not state.is_prefilling and not state.is_scoring:
                    self._end(state, state.final_reason)
            elif state.num_new_left == 0 and not state.is_prefilling:
                self._end(state, FinishReason("length", length=0))

    def _sample(self, logits: Float32Array, spans: Sequence[LogitSpan]) -> None:
        """Gives each request whose tokens are all computed its next one; ends what has ended."""
        sampled = [span for span in spans if span.is_sampled and span.chunk.state.node is not None]
        if not sampled:
            return
        results = sample_tokens(self._sampler, logits, sampled, self._known_tokens)
        now = time.monotonic()
        for span, result in zip(sampled, results, strict=True):
            state = span.chunk.state
            if isinstance(result, EspalierError):
                self._end(state, result)
                continue
            if state.first_token_at is None:
                state.first_token_at = now
            outcome = take_token(state, result)
            if outcome is not None:
                self._end(state, outcome)
                continue
            self._space.roll_back(state, state.num_reusable)
            if state.is_streamed:
                self._events.append(state.snapshot(now))

    def _end(self, state: RequestState, outcome: FinishReason | EspalierError) -> None:
        """Takes a request out and says how it ended."""
        self._scheduler.remove(state)
        request_id = state.request.request_id
        del self._states[request_id]
        totals = self._totals
        totals.generated_tokens += len(state.output_ids)
        totals.forced_tokens += state.num_forced
        if isinstance(outcome, FinishReason):
            totals.requests_finished += 1
            self._events.append(state.snapshot(time.monotonic(), outcome))
            return
        if isinstance(outcome, RequestCancelledError):
            totals.requests_cancelled += 1
        else:
            totals.requests_failed += 1
        self._events.append(RequestFailure(request_id, outcome))


def _shown(request: EngineRequest) -> SamplingParams:
    """The parameters of the text: control tokens that open a tool call are part of it."""
    constraint = request.constraint
    if constraint is None or constraint.kind is not ConstraintKind.TOOL_CALLS:
        return request.sampling
    return replace(request.sampling, skip_special_tokens=False)


def _cuts(constraint: Constraint | None) -> tuple[str, ...]:
    """Strings that end the text of a constraint and are no part of it."""
    if constraint is None or constraint.kind is not ConstraintKind.DTYPE:
        return ()
    return dtype_stops(constraint.text)


def _known_tokens(num_known: int, vocab_size: int) -> NDArray[np.uint32] | None:
    """A mask of the tokens that the tokenizer knows; None where the logits have no others.

    Models pad their vocabulary to a round size; a padding token has no text.
    """
    if num_known >= vocab_size:
        return None
    bits = np.zeros((vocab_size + 31) // 32 * 32, dtype=np.uint8)
    bits[:num_known] = 1
    return np.packbits(bits, bitorder="little").view("<u4")
