"""What a request must fulfil before the engine takes it; every check that needs no engine state."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from espalier.engine.options import EngineOptions
from espalier.engine.request import EngineRequest
from espalier.engine.sampler_rows import check_token_ids
from espalier.errors import CapacityError, PromptError, SamplingError, UnsupportedError
from espalier.types import flag, whole_number


def check_request(request: EngineRequest, options: EngineOptions, vocab_size: int) -> None:
    """Raises PromptError, SamplingError, UnsupportedError or CapacityError for a bad request."""
    if request.sampling.n != 1:
        raise UnsupportedError(
            f"a request asks for n={request.sampling.n} samples; the engine runs one sequence per "
            "request. Submit n requests: the prompt they share is computed once."
        )
    _check_ids(request.input_ids, vocab_size)
    check_size(len(request.input_ids), request.sampling.max_new_tokens, options)
    check_token_ids(request.sampling, vocab_size)
    _check_logprobs(request, vocab_size)


def _check_ids(input_ids: Sequence[int], vocab_size: int) -> None:
    if not input_ids:
        raise PromptError("the prompt is empty; at least one token is needed.")
    try:
        ids = np.array(input_ids, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        raise PromptError("input_ids holds something that is not a token id.") from None
    wrong = np.flatnonzero((ids < 0) | (ids >= vocab_size))
    if len(wrong):
        raise PromptError(
            f"input_ids holds {input_ids[wrong[0]]} at position {wrong[0]}; the vocabulary has the "
            f"ids 0 to {vocab_size - 1}."
        )


def check_size(num_prompt: int, max_new_tokens: int, options: EngineOptions) -> None:
    """Raises PromptError or CapacityError for a request too long for the context or the pool."""
    if num_prompt > options.context_length:
        raise PromptError(
            f"the prompt has {num_prompt} tokens; the context holds {options.context_length}. "
            "Shorten the prompt."
        )
    if num_prompt + max_new_tokens > options.context_length:
        raise PromptError(
            f"the prompt has {num_prompt} tokens and max_new_tokens is {max_new_tokens}; together "
            f"the context holds {options.context_length}. Shorten the prompt or ask for at most "
            f"{options.context_length - num_prompt} new tokens."
        )
    # The last new token is never fed back, so it needs no slot.
    num_slots = num_prompt + max(0, max_new_tokens - 1)
    if num_slots > options.num_slots:
        raise CapacityError(
            f"a prompt of {num_prompt} tokens with max_new_tokens {max_new_tokens} needs "
            f"{num_slots} slots of KV memory; the pool has {options.num_slots}. Shorten the "
            "prompt, lower max_new_tokens or start the engine with more slots."
        )


def _check_logprobs(request: EngineRequest, vocab_size: int) -> None:
    # An odd value that came through would end the engine's thread, not its request alone.
    flag("return_logprob", request.return_logprob)
    for name in ("logprob_start_len", "top_logprobs_num"):
        whole_number(name, getattr(request, name))
    whole_number("seed", request.seed)
    start, num_prompt = request.logprob_start_len, len(request.input_ids)
    if not -1 <= start <= num_prompt:
        raise SamplingError(
            f"logprob_start_len is {start}; -1 (output only) to {num_prompt} (the prompt's length) "
            "is allowed."
        )
    if not 0 <= request.top_logprobs_num <= vocab_size:
        raise SamplingError(
            f"top_logprobs_num is {request.top_logprobs_num}; 0 to {vocab_size} is allowed."
        )
    for token_id in request.token_ids_logprob:
        if not 0 <= whole_number("token_ids_logprob", token_id) < vocab_size:
            raise SamplingError(
                f"token_ids_logprob names token {token_id}; the vocabulary has the ids 0 to "
                f"{vocab_size - 1}."
            )
