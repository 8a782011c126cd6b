"""Turns the chunks of a step into the index arrays that an executor reads.

It knows positions and slots. What the rows are for it must not know, except which logits they ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from espalier.engine.request_state import RequestState
from espalier.engine.scheduler import Chunk
from espalier.exec.executor import Int32Array, StepBatch


class LogitSpan(NamedTuple):
    """Which rows of a step's logits belong to one chunk.

    Rows `first .. first + num_scored - 1` give the logprobs of tokens that were not sampled, of the
    prompt or forced; the row after them samples the next token, where `is_sampled`.
    """

    chunk: Chunk
    first: int
    num_scored: int
    is_sampled: bool


def build_batch(
    chunks: Sequence[Chunk], wanted: Mapping[RequestState, Int32Array] | None = None
) -> tuple[StepBatch, list[LogitSpan]]:
    """The step's arrays, and for each chunk its span of the logits.

    `wanted` says of some requests which tokens may come next, where these are few.
    """
    starts = np.array([chunk.start for chunk in chunks], dtype=np.int32)
    ends = np.array([chunk.end for chunk in chunks], dtype=np.int32)
    row_starts = _offsets(ends - starts)
    num_rows = row_starts.item(len(chunks))
    positions = np.arange(num_rows, dtype=np.int32)
    positions += np.repeat(starts - row_starts[:-1], ends - starts)
    spans, logit_rows = _logit_spans(chunks, row_starts)
    wanted_starts, wanted_ids = _wanted(spans, len(logit_rows), wanted) if wanted else (None, None)
    batch = StepBatch(
        token_ids=_joined([chunk.state.token_ids[chunk.start : chunk.end] for chunk in chunks]),
        positions=positions,
        row_starts=row_starts,
        slot_ids=_joined([chunk.state.slot_ids[: chunk.end] for chunk in chunks]),
        slot_starts=_offsets(ends),
        logit_rows=logit_rows,
        wanted_starts=wanted_starts,
        wanted_ids=wanted_ids,
    )
    return batch, spans


def _logit_spans(
    chunks: Sequence[Chunk], row_starts: Int32Array
) -> tuple[list[LogitSpan], Int32Array]:
    spans = []
    rows: list[int] = []
    for chunk, row_start in zip(chunks, row_starts[:-1].tolist(), strict=True):
        state, start, end = chunk
        first = len(rows)
        to_row = row_start - start  # from a position
        num_scored = 0
        if state.is_scoring:
            # Logits at position p - 1 give the probability of token p.
            num_scored = max(0, min(end, state.scored_end - 1) - (state.next_scored - 1))
            scored_from = state.next_scored - 1 + to_row
            rows.extend(range(scored_from, scored_from + num_scored))
        is_sampled = (
            end == state.num_tokens and state.num_new_left > 0 and state.final_reason is None
        )
        if is_sampled:
            rows.append(end - 1 + to_row)
        spans.append(LogitSpan(chunk, first, num_scored, is_sampled))
    return spans, np.array(rows, dtype=np.int32)


def _wanted(
    spans: Sequence[LogitSpan], num_logit_rows: int, wanted: Mapping[RequestState, Int32Array]
) -> tuple[Int32Array, Int32Array]:
    counts = np.zeros(num_logit_rows, dtype=np.int32)
    parts = []
    for span in spans:
        token_ids = wanted.get(span.chunk.state) if span.is_sampled else None
        if token_ids is not None:
            counts[span.first + span.num_scored] = len(token_ids)
            parts.append(token_ids)
    return _offsets(counts), np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)


def _offsets(lengths: Int32Array) -> Int32Array:
    """[0, l0, l0 + l1, ...]"""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _joined(parts: list[Int32Array]) -> Int32Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
