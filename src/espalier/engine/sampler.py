"""Chooses tokens from logits, for many rows in one native call.

Owns the native sampler and what its answers mean; `docs/sampling.md` defines the steps between
logits and token. Knows nothing of requests, caches or text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier._native import ThreadPool, TokenSampler
from espalier.engine.sampler_rows import (
    MAX_VOCAB_SIZE,
    SampledToken,
    SampleResult,
    SampleRow,
    broken_logits_error,
    check_token_ids,
    foreign_token_error,
    nothing_allowed_error,
)
from espalier.errors import EspalierError, UnsupportedError
from espalier.exec.instruction_sets import chosen_isa

__all__ = ["SampleResult", "SampleRow", "SampledToken", "Sampler", "check_token_ids"]

# (status, token id, logprob, ((id, logprob), ...), (logprob, ...)): the native answer for a row
# that wants logprobs or failed. The answer for another row is the token.
SampledAnswer = tuple[int, int, float, tuple[tuple[int, float], ...], tuple[float, ...]]

# Values of the native SampleStatus.
_OK, _BROKEN_LOGITS, _NOTHING_ALLOWED, _FOREIGN_TOKEN = range(4)


class Sampler:
    """Samples rows of logits of one vocabulary.

    A row's result depends on its own logits and settings alone, bit for bit. The choice is the
    same on every machine and instruction set; the last bit of a logprob may differ between
    machines. Calls from several threads wait for each other. Rows are shared among the threads of
    `pool`, where there is one.

    Attributes:
        isa: the instruction set in use; "auto" takes `ESPALIER_ISA`, else the best one.

    Raises:
        UnsupportedError: the vocabulary has more than 2**20 tokens, or the machine lacks the
            instruction set.
    """

    def __init__(self, vocab_size: int, isa: str = "auto", pool: ThreadPool | None = None) -> None:
        if not 1 <= vocab_size <= MAX_VOCAB_SIZE:
            raise UnsupportedError(
                f"The vocabulary has {vocab_size} tokens; 1 to {MAX_VOCAB_SIZE} can be sampled."
            )
        self.vocab_size = vocab_size
        self._native = TokenSampler(vocab_size, chosen_isa(isa), pool)
        self.isa = self._native.isa

    def sample(self, logits: NDArray[np.float32], rows: Sequence[SampleRow]) -> list[SampleResult]:
        """Chooses one token per row of logits.

        `logits` [n, V] is float32 and contiguous, and is not modified. The entry of a row that
        cannot be sampled is its error: BackendError for logits that are not numbers,
        SamplingError where no token is allowed or a token id lies outside the vocabulary.
        """
        return [
            SampledToken(answer, math.nan) if isinstance(answer, int) else self._token(row, answer)
            for row, answer in zip(rows, self._native.sample(logits, rows), strict=True)
        ]

    def token_logprobs(
        self,
        logits: NDArray[np.float32],
        token_ids: Sequence[int] | NDArray[np.int32],
        top_logprobs_num: int = 0,
        token_ids_logprob: Sequence[int] = (),
    ) -> list[SampleResult]:
        """Log-probabilities of given tokens, one per row of logits (a prompt's, as a rule).

        `logits` [n, V] as for `sample`; errors likewise.
        """
        answers = self._native.token_logprobs(
            logits, token_ids, top_logprobs_num, token_ids_logprob
        )
        results: list[SampleResult] = []
        for status, token_id, logprob, top, chosen in answers:
            if status == _OK:
                listed = tuple(zip(token_ids_logprob, chosen, strict=True))
                results.append(SampledToken(token_id, logprob, top, listed))
            elif status == _BROKEN_LOGITS:
                results.append(broken_logits_error())
            else:
                results.append(foreign_token_error(self.vocab_size))
        return results

    def _token(self, row: SampleRow, answer: SampledAnswer) -> SampleResult:
        status, token_id, logprob, top, chosen = answer
        if status != _OK:
            return self._error(row, status)
        listed = tuple(zip(row.token_ids_logprob, chosen, strict=True))
        return SampledToken(token_id, logprob, top, listed)

    def _error(self, row: SampleRow, status: int) -> EspalierError:
        if status == _BROKEN_LOGITS:
            return broken_logits_error()
        if status == _NOTHING_ALLOWED:
            return nothing_allowed_error(row)
        return foreign_token_error(self.vocab_size)
