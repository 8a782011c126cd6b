"""What a sampler takes and gives: one row of logits with its settings, one token.

Knows nothing of how a token is chosen, nor of requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.errors import BackendError, EspalierError, SamplingError
from espalier.types import SamplingParams

# Sums of weights are exact up to this many tokens; see docs/sampling.md.
MAX_VOCAB_SIZE = 2**20


@dataclass(slots=True)
class SampleRow:
    """How to choose the next token of one sequence.

    One object may serve a sequence for its life: whoever made it moves position, ids and mask on
    between the calls of a sampler.

    Attributes:
        sampling: read once: what the native sampler has read of it stays with the row, until the
            row is given another object.
        seed: any whole number; its lowest 64 bits count.
        position: absolute position in its sequence of the token to be chosen, from 0.
        prompt_ids: prompt tokens; read only for a repetition penalty. An int32 array is read as
            it is, another sequence is converted first.
        output_ids: tokens generated so far; read only for penalties, likewise.
        banned_ids: tokens that may not be chosen now (ends, while below min_new_tokens).
        mask: bit i (of word i // 32) set = token i may be chosen, [ceil(vocab_size / 32)]; None
            allows all. Where no logprobs are wanted, nothing is read of the logits of the others:
            they may be any bits (see StepBatch.wanted_ids).
        want_logprob: fill `SampledToken.logprob`.
        top_logprobs_num: most probable tokens listed in `SampledToken.top`.
        token_ids_logprob: tokens whose logprob is listed in `SampledToken.chosen`.
    """

    sampling: SamplingParams
    seed: int
    position: int
    prompt_ids: Sequence[int] | NDArray[np.int32] = ()
    output_ids: Sequence[int] | NDArray[np.int32] = ()
    banned_ids: Sequence[int] = ()
    mask: NDArray[np.uint32] | None = None
    want_logprob: bool = False
    top_logprobs_num: int = 0
    token_ids_logprob: Sequence[int] = ()
    read_settings: object = field(default=None, init=False, repr=False, compare=False)


class SampledToken(NamedTuple):
    """A token and the natural log-probabilities that were asked for.

    Log-probabilities are those of the model: of the raw logits, before penalties, bias, mask and
    temperature. `logprob` is NaN where it was not asked for. `top` is in falling order of
    probability, ties by id; `chosen` in the order of `token_ids_logprob`.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    chosen: tuple[tuple[int, float], ...] = ()


# A row that cannot be sampled gives its error in place of a token; the other rows go on.
SampleResult = SampledToken | EspalierError


def check_token_ids(sampling: SamplingParams, vocab_size: int) -> None:
    """Raises SamplingError where parameters name a token outside the vocabulary.

    For the admission of a request: the sampler itself gives such a row an error at every step.
    """
    for name, token_ids in (
        ("logit_bias", sampling.logit_bias),
        ("stop_token_ids", sampling.stop_token_ids),
    ):
        for token_id in token_ids:
            if not 0 <= token_id < vocab_size:
                raise SamplingError(
                    f"{name} names token {token_id}; the vocabulary has the ids 0 to "
                    f"{vocab_size - 1}."
                )


def broken_logits_error() -> BackendError:
    """The error of a row whose logits hold NaN or +infinity, or are all -infinity.

    Only those count that the row reads; see `SampleRow.mask`.
    """
    return BackendError(
        "The model's logits hold NaN or +infinity, or no finite number at all, so no token can be "
        "chosen: the model file is damaged or the model overflows. Other requests go on."
    )


def nothing_allowed_error(row: SampleRow) -> SamplingError:
    """The error of a row in which mask, banned tokens and bias leave no token."""
    reasons = []
    if row.mask is not None:
        reasons.append("the form that the output must have")
    if len(row.banned_ids):
        reasons.append(f"min_new_tokens={row.sampling.min_new_tokens} (the text may not end yet)")
    if row.sampling.logit_bias:
        reasons.append(f"logit_bias on {len(row.sampling.logit_bias)} tokens")
    return SamplingError(
        f"No token is allowed at position {row.position}: "
        f"{' together with '.join(reasons) or 'the logits'} rules out every one. "
        "Loosen one of them."
    )


def foreign_token_error(vocab_size: int) -> SamplingError:
    """The error of a row that names a token outside the vocabulary."""
    return SamplingError(
        f"The request names a token id outside the vocabulary; 0 to {vocab_size - 1} are allowed "
        "in logit_bias, stop_token_ids, token_ids_logprob and prompts."
    )
