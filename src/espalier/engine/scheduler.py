"""Which requests run and which token rows the next step computes.

It owns the waiting and running lists, the budgets and the decision to retract. Memory is
KvSpace's; tokens, logits and results it must not know. See docs/scheduler.md.
"""

from __future__ import annotations

import random
from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import NamedTuple

from espalier.engine.kv_space import KvSpace
from espalier.engine.options import EngineOptions
from espalier.engine.radix_node import common_length
from espalier.engine.request_state import RequestState
from espalier.engine.waiting_order import admission_order
from espalier.errors import CapacityError


class Chunk(NamedTuple):
    """Positions `start .. end - 1` of one request, to be computed in the next step."""

    state: RequestState
    start: int
    end: int


class Scheduler:
    """Continuous batching with chunked prefill over one KvSpace."""

    def __init__(self, options: EngineOptions, space: KvSpace) -> None:
        self._options = options
        self._space = space
        self._rng = random.Random(options.random_seed)
        self.waiting: list[RequestState] = []  # by arrival
        self.running: list[RequestState] = []  # by admission
        self._num_arrivals = 0
        self._num_steps = 0
        self.num_retractions = 0

    def add(self, state: RequestState) -> None:
        """Puts a request in the queue; raises CapacityError when it is full."""
        limit = self._options.max_waiting_requests
        num_places = self._options.max_running_requests - len(self.running)
        if len(self.waiting) >= limit + num_places:
            raise CapacityError(
                f"{len(self.waiting)} requests are waiting and {len(self.running)} run; the queue "
                f"takes {limit} beyond the {num_places} that may start now. Submit again later, or "
                "raise max_waiting_requests."
            )
        state.arrival = self._num_arrivals
        state.arrival_step = self._num_steps
        self._num_arrivals += 1
        self.waiting.append(state)

    def remove(self, state: RequestState) -> None:
        """Takes out a request that has ended; what it computed stays cached."""
        if state.node is None:
            self.waiting.remove(state)
        else:
            self.running.remove(state)
            self._space.close(state)

    def admit(self, now: float) -> list[RequestState]:
        """Moves waiting requests to the running ones while tokens, slots and places last.

        A request that does not fit is passed over (paper algorithm 1), unless it has been passed
        over too often: then nobody is admitted before it. One whose prefix is being computed waits
        for that.
        """
        self._num_steps += 1
        if not self.waiting or self._is_full():
            return []
        budget = self._options.chunk_tokens - sum(
            chunk.end - chunk.start
            for chunk in self._plan()
            if chunk.state.is_prefilling or chunk.end - chunk.start > 1
        )
        admitted: list[RequestState] = []
        promised = sum(self._promised(state) for state in self.running)
        for state in self._order():
            if budget <= 0 or self._is_full():
                break
            num_cached = self._space.peek(state)
            if self._waits_for_leader(state, num_cached):
                continue
            if self.running and not self._fits(state, promised):
                if self._is_aged(state):
                    break
                continue
            self._start(state, now)
            admitted.append(state)
            budget -= state.num_wanted - state.num_computed
            promised += self._promised(state)
        if admitted:
            self._settle(admitted)
        return admitted

    def next_chunks(self) -> list[Chunk]:
        """The rows of the next step, decode rows first, with slots for each.

        Retracts the youngest requests while the pool has no slots for the others.
        """
        while True:
            chunks = self._plan()
            if self._space.grow([(chunk.state, chunk.end) for chunk in chunks]):
                return chunks
            self._retract(max(self.running, key=lambda state: state.arrival))

    def check_invariants(self) -> None:
        """Raises AssertionError unless lists, requests and slots agree."""
        assert all(state.node is None for state in self.waiting), "a waiting request holds slots"
        arrivals = [state.arrival for state in self.waiting]
        assert arrivals == sorted(arrivals), "the queue is out of order"
        assert len(self.running) <= self._options.max_running_requests
        assert not set(self.waiting) & set(self.running), "a request waits and runs"
        self._space.check_invariants(self.running)

    def _is_full(self) -> bool:
        return len(self.running) >= self._options.max_running_requests

    def _is_aged(self, state: RequestState) -> bool:
        return state.num_passed_over >= self._options.max_passed_over

    def _order(self) -> Sequence[RequestState]:
        options = self._options
        if len(self.waiting) == 1:
            return self.waiting.copy()
        return admission_order(
            options.schedule_policy,
            self.waiting,
            options.max_passed_over,
            self._space.peek,
            self._rng,
        )

    def _promised(self, state: RequestState) -> int:
        """Slots that a running request has not got and will need soon."""
        soon = min(state.num_new_left, self._options.decode_reserve_tokens)
        return state.num_tokens - state.num_allocated + soon

    def _fits(self, state: RequestState, promised: int) -> bool:
        soon = min(state.num_new_left, self._options.decode_reserve_tokens)
        return self._space.cost(state) + soon <= self._space.num_available - promised

    def _waits_for_leader(self, state: RequestState, num_cached: int) -> bool:
        """Whether a running request is computing a longer prefix of this one than is cached.

        An aged request waits on for the leader that it has, and for no other.
        """
        if not self._options.in_flight_sharing or not self._options.prefix_cache:
            return False
        known_leader = state.leader
        state.leader = None
        if num_cached + self._options.min_shared_gain > state.match_limit:
            return False
        for leader in self.running:
            if not leader.is_prefilling or (self._is_aged(state) and leader is not known_leader):
                continue
            if self._gain(state, leader, num_cached) >= self._options.min_shared_gain:
                state.leader = leader
                return True
        return False

    @staticmethod
    def _gain(state: RequestState, leader: RequestState, num_cached: int) -> int:
        """Tokens beyond the cached ones that a request would get by waiting for a leader."""
        if (
            leader.num_tokens <= num_cached
            or leader.token_ids.item(num_cached) != state.token_ids.item(num_cached)
            or leader.request.namespace != state.request.namespace
        ):
            return 0
        shared = common_length(
            leader.token_ids[: leader.num_tokens], state.token_ids[: state.match_limit]
        )
        return shared - num_cached

    def _start(self, state: RequestState, now: float) -> None:
        self._space.open(state)
        state.num_to_prefill = state.num_wanted
        state.leader = None
        if state.admitted_at is None:
            state.admitted_at = now
            state.num_cached = min(state.num_shared, state.num_prompt)
        self.running.append(state)

    def _settle(self, admitted: list[RequestState]) -> None:
        """Takes the admitted out of the queue and counts whom they passed over."""
        chosen = set(admitted)
        self.waiting = [state for state in self.waiting if state not in chosen]
        steps = sorted(state.arrival_step for state in admitted)
        for state in self.waiting:
            # Requests of one step are a batch known in advance: among them order is free.
            num_later = len(steps) - bisect_right(steps, state.arrival_step)
            if num_later == 0:
                break  # nor were those after it passed over
            state.num_passed_over += num_later

    def _plan(self) -> list[Chunk]:
        chunks = []
        prefilling = []
        for state in self.running:
            if state.num_wanted - state.num_computed == 1:
                chunks.append(Chunk(state, state.num_computed, state.num_wanted))
            else:
                prefilling.append(state)
        budget = self._options.chunk_tokens
        logit_budget = self._options.prompt_logit_rows
        for state in prefilling:
            start = state.num_computed
            end = min(state.num_wanted, start + budget)
            if state.is_scoring:
                first_row = state.next_scored - 1
                end = min(end, first_row + logit_budget)
                logit_budget -= max(0, min(end, state.scored_end - 1) - first_row)
            if end > start:
                chunks.append(Chunk(state, start, end))
                budget -= end - start
        return chunks

    def _retract(self, state: RequestState) -> None:
        """Sends a running request back to the queue; its tokens stay cached while there is room."""
        if len(self.running) == 1:
            raise AssertionError("a request that runs alone does not fit in the pool")
        self.running.remove(state)
        self._space.close(state)
        state.num_retractions += 1
        self.num_retractions += 1
        insort(self.waiting, state, key=lambda other: other.arrival)
