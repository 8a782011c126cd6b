"""From a step's logits to tokens and logprobs of its requests, and whether they have ended.

It owns how sampler, constraint and text meet. Lists, slots and events are the engine's. What goes
wrong with one request is that request's error: it comes back as a value and the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.constrain.guide import TailChange
from espalier.engine.batch import LogitSpan
from espalier.engine.request import LogprobTable
from espalier.engine.request_state import RequestState
from espalier.engine.sampler import SampledToken, SampleResult, SampleRow
from espalier.engine.scheduler import Chunk
from espalier.errors import BackendError, EspalierError, SamplingError
from espalier.exec.executor import MAX_WANTED_IDS, Float32Array, Int32Array
from espalier.types import FinishReason, SamplingParams, TokenLogprob


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


_GREEDY = SamplingParams(temperature=0.0)

# Either the request goes on, or it has ended, or it has failed.
Outcome = FinishReason | EspalierError | None


def as_espalier_error(error: Exception, what: str) -> EspalierError:
    """The error itself where it is ours, else a BackendError with it as the cause."""
    if isinstance(error, EspalierError):
        return error
    wrapped = BackendError(f"{what} failed with {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def score_tokens(
    sampler: TokenSampler, logits: Float32Array, span: LogitSpan
) -> EspalierError | None:
    """Writes the logprobs of given tokens that this step's logits tell; returns an error."""
    state = span.chunk.state
    table = state.output_logprobs
    if state.next_scored < state.num_prompt:
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
        return as_espalier_error(error, "scoring given tokens")
    for result in results:
        if isinstance(result, EspalierError):
            return result
        if state.next_scored == state.num_prompt:
            table = state.output_logprobs
            assert table is not None
        _add_logprobs(table, result)
        state.next_scored += 1
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
        row = _row_or_error(span.chunk.state, known_tokens, (logits.shape[1] + 31) // 32)
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


def wanted_tokens(chunks: Sequence[Chunk]) -> dict[RequestState, Int32Array]:
    """The tokens that may come next, of requests that allow few and ask for no logprobs.

    What goes wrong here goes wrong again where the token is chosen, and is told there.
    """
    wanted = {}
    for state, _, end in chunks:
        if end != state.num_tokens or state.request.return_logprob or state.guide is None:
            continue
        if state.planned:
            wanted[state] = np.array([state.planned[0]], dtype=np.int32)
            continue
        with suppress(Exception):
            matcher = state.guide.matcher
            if matcher.num_allowed <= MAX_WANTED_IDS:
                wanted[state] = matcher.allowed_ids()
    return wanted


def take_token(state: RequestState, sampled: SampledToken) -> Outcome:
    """Adds a token, and those that it forces, to a request; says whether it ends there."""
    try:
        return _ended(state, _take_token(state, sampled))
    except Exception as error:
        return as_espalier_error(error, "taking a token")


def start_output(state: RequestState) -> None:
    """Adds the tokens with which the output of a new request must begin."""
    if state.guide is not None and state.request.sampling.max_new_tokens > 0:
        _ended(state, _follow(state, state.guide.start(), None))


def _ended(state: RequestState, reason: FinishReason | None) -> FinishReason | None:
    """The reason of an end, or None while logprobs of the output's last tokens are missing."""
    if reason is None:
        return None
    state.text.finish()
    is_started = state.node is not None
    if is_started and not state.is_scoring:
        return reason
    state.final_reason = reason
    return None


def _take_token(state: RequestState, sampled: SampledToken) -> FinishReason | None:
    token_id = sampled.token_id
    if state.planned:
        state.planned.popleft()
    elif state.guide is not None and token_id not in state.end_ids:
        return _follow(state, state.guide.take(token_id), sampled)
    return _push(state, token_id, sampled) or _completed(state)


def _follow(
    state: RequestState, change: TailChange, sampled: SampledToken | None
) -> FinishReason | None:
    """Changes the end of the output; forced tokens wait for their turn where it does not jump."""
    state.take_back(change.num_removed)
    token_ids = change.token_ids
    num_now = len(token_ids) if state.jumps else len(token_ids) - change.num_forced
    state.planned.extend(token_ids[num_now:])
    is_kept = sampled is not None and [sampled.token_id] == token_ids[:1]
    known = sampled if is_kept and change.num_removed == 0 else None
    for index, token_id in enumerate(token_ids[:num_now]):
        reason = _push(state, token_id, known if index == 0 else None)
        if reason is not None:
            state.num_dropped = num_now - index - 1
            return reason
    return _completed(state)


def _push(state: RequestState, token_id: int, sampled: SampledToken | None) -> FinishReason | None:
    """Adds a token to output and text; the reason of the stop that it is or completes, if any.

    Forced tokens end the output as chosen ones do, and likewise not before `min_new_tokens`.
    """
    sampling = state.request.sampling
    may_end = len(state.output_ids) >= sampling.min_new_tokens
    _append(state, token_id, sampled)
    if may_end and token_id in state.end_ids:
        if sampling.no_stop_trim:
            state.text.push_end(token_id)
        return FinishReason("stop", matched=token_id)
    stop = state.text.push(token_id)
    return None if stop is None else FinishReason("stop", matched=stop)


def _append(state: RequestState, token_id: int, sampled: SampledToken | None) -> None:
    """Adds a token to the output; its logprob is computed later where it was not sampled."""
    state.append(token_id)
    if state.output_logprobs is None:
        return
    state.scored_end = state.num_tokens
    if sampled is not None:
        _add_logprobs(state.output_logprobs, sampled)
        state.next_scored = state.num_tokens


def _completed(state: RequestState) -> FinishReason | None:
    """Why the output ends with its last token, if it does."""
    if state.guide is not None and not state.planned and state.guide.must_stop:
        _check_long_enough(state)
        return FinishReason("stop")
    if state.num_new_left == 0:
        return FinishReason("length", length=len(state.output_ids))
    return None


def _check_long_enough(state: RequestState) -> None:
    count, least = len(state.output_ids), state.request.sampling.min_new_tokens
    if count < least:
        raise SamplingError(
            f"min_new_tokens is {least}, but the output is complete after {count} tokens and "
            "nothing may follow it in the form that it must have. "
            "Lower min_new_tokens or leave out the constraint."
        )


def _row_or_error(
    state: RequestState, known_tokens: NDArray[np.uint32] | None, num_mask_words: int
) -> SampleRow | EspalierError:
    try:
        return _sample_row(state, known_tokens, num_mask_words)
    except Exception as error:
        return as_espalier_error(error, "the constraint")


def _sample_row(
    state: RequestState, known_tokens: NDArray[np.uint32] | None, num_mask_words: int
) -> SampleRow:
    """The request's row, moved on to its next token."""
    row, sampling, guide = state.sample_row, state.request.sampling, state.guide
    if state.planned:
        # Nothing is chosen, so that no penalty and no bias may matter.
        mask = _only(state.planned[0], num_mask_words)
        return replace(
            row, sampling=_GREEDY, prompt_ids=(), output_ids=(), banned_ids=(), mask=mask
        )
    row.position = max(state.num_tokens, state.next_position)
    state.next_position = row.position + 1
    if sampling.has_penalty:
        row.prompt_ids = state.token_ids[: state.num_prompt]
        row.output_ids = state.token_ids[state.num_prompt : state.num_tokens]
    may_end = len(state.output_ids) >= sampling.min_new_tokens
    row.banned_ids = tuple(state.never_ids if may_end else state.never_ids | state.end_ids)
    row.mask = known_tokens if guide is None else guide.mask()
    return row


def _only(token_id: int, num_words: int) -> NDArray[np.uint32]:
    """A mask of one token."""
    mask = np.zeros(num_words, np.uint32)
    mask[token_id // 32] = np.uint32(1 << token_id % 32)
    return mask


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
