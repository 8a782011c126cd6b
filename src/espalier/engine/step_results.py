"""From a step's logits to tokens and logprobs of its requests, and whether they have ended.

It owns how sampler, constraint and text meet. Lists, slots and events are the engine's. What goes
wrong with one request is that request's error: it comes back as a value and the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.engine.batch import LogitSpan
from espalier.engine.request import LogprobTable
from espalier.engine.request_state import RequestState
from espalier.engine.sampler import SampledToken, SampleResult, SampleRow
from espalier.errors import BackendError, EspalierError, SamplingError
from espalier.exec.executor import Float32Array
from espalier.types import FinishReason, TokenLogprob


class TokenSampler(Protocol):
    """The part of a sampler that the engine needs; `engine.sampler.Sampler` is one."""

    def sample(self, logits: Float32Array, rows: Sequence[SampleRow]) -> list[SampleResult]:
        """One token, or error, per row of logits, [n, V]."""
        ...

    def token_logprobs(
        self,
        logits: Float32Array,
        token_ids: Sequence[int],
        top_logprobs_num: int = 0,
        token_ids_logprob: Sequence[int] = (),
    ) -> list[SampleResult]:
        """Log-probabilities of given tokens, one per row of logits, [n, V]."""
        ...


# Either the request goes on, or it has ended, or it has failed.
Outcome = FinishReason | EspalierError | None


def as_espalier_error(error: Exception, what: str) -> EspalierError:
    """The error itself where it is ours, else a BackendError with it as the cause."""
    if isinstance(error, EspalierError):
        return error
    wrapped = BackendError(f"{what} failed with {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def score_prompt(
    sampler: TokenSampler, logits: Float32Array, span: LogitSpan
) -> EspalierError | None:
    """Writes the logprobs of the prompt tokens that this step's logits tell; returns an error."""
    state = span.chunk.state
    table = state.input_logprobs
    assert table is not None
    rows = logits[span.first : span.first + span.num_scored]
    token_ids = state.token_ids[state.next_scored : state.next_scored + span.num_scored]
    request = state.request
    try:
        results = sampler.token_logprobs(
            rows, token_ids.tolist(), request.top_logprobs_num, request.token_ids_logprob
        )
    except Exception as error:
        return as_espalier_error(error, "scoring the prompt")
    for result in results:
        if isinstance(result, EspalierError):
            return result
        _add_logprobs(table, result)
    state.next_scored += span.num_scored
    return None


def sample_tokens(
    sampler: TokenSampler,
    logits: Float32Array,
    spans: Sequence[LogitSpan],
    known_tokens: NDArray[np.uint32] | None,
) -> list[SampleResult]:
    """The next token of each span's request; all spans are sampled ones.

    `known_tokens` is the mask of requests without a constraint; None allows every token.
    """
    results: list[SampleResult | None] = [None] * len(spans)
    indices, rows = [], []
    for index, span in enumerate(spans):
        row = _row_or_error(span.chunk.state, known_tokens)
        if isinstance(row, SampleRow):
            indices.append(index)
            rows.append(row)
        else:
            results[index] = row
    logit_rows = [spans[index].first + spans[index].num_scored for index in indices]
    # Without prompt scoring the rows are all logits there are: no copy then.
    wanted = logits if len(logit_rows) == len(logits) else logits[logit_rows]
    for index, result in zip(indices, _sample_rows(sampler, wanted, rows), strict=True):
        results[index] = result
    assert None not in results
    return [result for result in results if result is not None]


def take_token(state: RequestState, sampled: SampledToken) -> Outcome:
    """Adds a token to a request; says whether it ends there."""
    token_id = sampled.token_id
    state.append(token_id)
    if state.output_logprobs is not None:
        _add_logprobs(state.output_logprobs, sampled)
    try:
        return _take_token(state, token_id)
    except Exception as error:
        return as_espalier_error(error, "taking a token")


def _take_token(state: RequestState, token_id: int) -> FinishReason | None:
    reason: FinishReason | None = None
    if token_id in state.end_ids:
        reason = FinishReason("stop", matched=token_id)
        if state.request.sampling.no_stop_trim:
            state.text.push(token_id)
    else:
        if state.matcher is not None:
            state.matcher.accept(token_id)
        stop = state.text.push(token_id)
        if stop is not None:
            reason = FinishReason("stop", matched=stop)
        elif state.matcher is not None and state.matcher.must_stop:
            _check_long_enough(state)
            reason = FinishReason("stop")
        elif state.num_new_left == 0:
            reason = FinishReason("length", length=len(state.output_ids))
    if reason is not None:
        state.text.finish()
    return reason


def _check_long_enough(state: RequestState) -> None:
    count, least = len(state.output_ids), state.request.sampling.min_new_tokens
    if count < least:
        raise SamplingError(
            f"min_new_tokens is {least}, but the {state.request.dtype} is complete after {count} "
            "tokens and nothing may follow it. Lower min_new_tokens or leave out the dtype."
        )


def _row_or_error(
    state: RequestState, known_tokens: NDArray[np.uint32] | None
) -> SampleRow | EspalierError:
    try:
        return _sample_row(state, known_tokens)
    except Exception as error:
        return as_espalier_error(error, "the constraint")


def _sample_row(state: RequestState, known_tokens: NDArray[np.uint32] | None) -> SampleRow:
    """The request's row, moved on to its next token."""
    row, sampling, matcher = state.sample_row, state.request.sampling, state.matcher
    row.position = state.num_tokens
    if sampling.has_penalty:
        row.prompt_ids = state.token_ids[: state.num_prompt]
        row.output_ids = state.token_ids[state.num_prompt : state.num_tokens]
    may_end = len(state.output_ids) >= sampling.min_new_tokens
    row.banned_ids = () if may_end else tuple(state.end_ids)
    row.mask = known_tokens if matcher is None else matcher.mask()
    return row


def _sample_rows(
    sampler: TokenSampler, logits: Float32Array, rows: Sequence[SampleRow]
) -> list[SampleResult]:
    try:
        return sampler.sample(logits, rows)
    except Exception as error:
        if len(rows) == 1:
            return [as_espalier_error(error, "sampling")]
    # One by one, so that only the row at fault fails.
    results: list[SampleResult] = []
    for index, row in enumerate(rows):
        results += _sample_rows(sampler, logits[index : index + 1], [row])
    return results


def _add_logprobs(table: LogprobTable, result: SampledToken) -> None:
    table.tokens.append(TokenLogprob(result.logprob, result.token_id))
    table.top.append([TokenLogprob(value, token_id) for token_id, value in result.top])
    table.chosen_ids.append([TokenLogprob(value, token_id) for token_id, value in result.chosen])
