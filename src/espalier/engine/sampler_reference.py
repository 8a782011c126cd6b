"""The sampler in plain numpy: whole sorts and cumulative sums, one row at a time.

It is the oracle of the native sampler (`engine.sampler`), which returns the same tokens bit for
bit. That is possible because every step is exact or one IEEE rounding: weights are float32 values
made by additions and multiplications alone, rounded to multiples of `WEIGHT_QUANTUM`, so that their
sums in float64 are exact in any order. `docs/sampling.md` has the definition in words. Knows
nothing of requests or of the engine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.engine.sampler_rows import (
    SampledToken,
    SampleResult,
    SampleRow,
    broken_logits_error,
    foreign_token_error,
    nothing_allowed_error,
)
from espalier.types import NO_TOP_K, SamplingParams

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]

# At most 2**20 weights of at most 1 in steps of 2**-33: every partial sum has at most 53 bits.
WEIGHT_QUANTUM = 2.0**-33
LARGEST = np.finfo(np.float32).max

# exp(r) = 1 + r + r*r * (c[0]*r**4 + ... + c[4]); fitted for the least relative error on
# |r| <= ln 2 / 2, where the formula itself is off by 3e-9.
EXP_COEFFICIENTS = (1.38145400e-3, 8.36874525e-3, 4.16683908e-2, 1.66665204e-1, 4.99999934e-1)


def philox(counter: Sequence[int], key: Sequence[int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10, a counter-based generator (Salmon et al., SC 2011, section 3.3)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """The random number of (seed, position): 53 bits in [0, 1)."""
    counter = (position % 2**32, position >> 32, 0, 0)
    first, second, _, _ = philox(counter, (seed % 2**32, (seed >> 32) % 2**32))
    return float((first << 32 | second) >> 11) * 2.0**-53


def exp_weights(scaled: FloatArray) -> FloatArray:
    """exp(x) of float32 values x <= 0, rounded to multiples of WEIGHT_QUANTUM.

    exp(x) = 2**n * exp(r) with n = round(x / ln 2), in additions, multiplications and bit
    operations alone, so that every IEEE machine gives the same bits.
    """
    f32 = np.float32
    x = np.fmax(scaled, f32(-30.0))  # exp(-30) is less than half a quantum
    rounder = f32(1.5 * 2**23)
    n = (x * f32(1.44269504) + rounder) - rounder
    r = (x - n * f32(0.693359375)) - n * f32(-2.12194440e-4)  # ln 2 in two parts
    p = np.full_like(r, EXP_COEFFICIENTS[0])
    for coefficient in EXP_COEFFICIENTS[1:]:
        p = p * r + f32(coefficient)
    power = ((n.astype(np.int32) + np.int32(127)) << np.int32(23)).view(np.float32)
    value = ((p * (r * r) + r) + f32(1.0)) * power
    pin = f32(2.0**23 * WEIGHT_QUANTUM)
    return np.asarray((value + pin) - pin, dtype=np.float32)


def adjusted_logits(logits: FloatArray, row: SampleRow) -> FloatArray:
    """Logits after penalties, bias, bans and mask, in this order; a new array, [V]."""
    sampling, f32 = row.sampling, np.float32
    adjusted: FloatArray = logits.copy()
    counts = Counter(int(token_id) for token_id in row.output_ids)
    if sampling.repetition_penalty != 1.0:
        penalty = f32(sampling.repetition_penalty)
        for token_id in {*counts, *(int(token_id) for token_id in row.prompt_ids)}:
            value = adjusted[token_id]
            if value > -np.inf:  # a penalty as small as 0 would make it NaN
                adjusted[token_id] = _capped(value / penalty if value > 0 else value * penalty)
    for token_id, count in counts.items():
        adjusted[token_id] -= f32(sampling.frequency_penalty) * f32(count)
        adjusted[token_id] -= f32(sampling.presence_penalty)
    for token_id, bias in sampling.logit_bias.items():
        if adjusted[token_id] > -np.inf:  # what the model excludes stays excluded
            adjusted[token_id] = _capped(adjusted[token_id] + f32(bias))
    adjusted[list(row.banned_ids)] = -np.inf
    if row.mask is not None:
        adjusted[~_allowed(row.mask, len(adjusted))] = -np.inf
    return adjusted


def kept_weights(adjusted: FloatArray, sampling: SamplingParams) -> FloatArray:
    """Weight of each token, 0 outside top_k, top_p and min_p; the largest is 1."""
    largest = adjusted.max()
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        weights = exp_weights((adjusted - largest) * np.float32(1.0 / sampling.temperature))
    if sampling.top_k != NO_TOP_K:
        order = np.argsort(-adjusted.astype(np.float64), kind="stable")
        weights[order[sampling.top_k :]] = 0
    if sampling.top_p < 1.0:
        order = np.argsort(-weights.astype(np.float64), kind="stable")
        sums = np.cumsum(weights[order], dtype=np.float64)
        reached = int(np.argmax(sums >= sampling.top_p * sums[-1]))
        weights[order[reached + 1 :]] = 0
    weights[weights < sampling.min_p] = 0
    return weights


def draw(weights: FloatArray, random: float) -> int:
    """Inverse distribution function: the first id whose cumulative weight exceeds the share."""
    sums = np.cumsum(weights, dtype=np.float64)
    return int(np.searchsorted(sums, random * sums[-1], side="right"))


def log_softmax(logits: FloatArray) -> NDArray[np.float64]:
    """Natural log-probabilities in float64."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.asarray(shifted - math.log(np.exp(shifted).sum()))


class ReferenceSampler:
    """The naive sampler; the interface is that of `engine.sampler.Sampler`."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def sample(self, logits: FloatArray, rows: Sequence[SampleRow]) -> list[SampleResult]:
        """Chooses one token per row of logits, [n, V]."""
        return [self._sample_row(values, row) for values, row in zip(logits, rows, strict=True)]

    def token_logprobs(
        self,
        logits: FloatArray,
        token_ids: Sequence[int],
        top_logprobs_num: int = 0,
        token_ids_logprob: Sequence[int] = (),
    ) -> list[SampleResult]:
        """Log-probabilities of given tokens, one per row of logits, [n, V]."""
        return [
            self._with_logprobs(values, token_id, top_logprobs_num, token_ids_logprob)
            if _is_sound(values)
            else broken_logits_error()
            for values, token_id in zip(logits, token_ids, strict=True)
        ]

    def _sample_row(self, logits: FloatArray, row: SampleRow) -> SampleResult:
        if not self._knows(row):
            return foreign_token_error(self.vocab_size)
        wants_logprobs = row.want_logprob or row.top_logprobs_num or len(row.token_ids_logprob)
        judged = logits
        if row.mask is not None and not wants_logprobs:
            judged = logits[_allowed(row.mask, len(logits))]  # the others count for nothing
        if len(judged) and not _is_sound(judged):
            return broken_logits_error()
        adjusted = adjusted_logits(logits, row)
        if adjusted.max() == -np.inf:
            return nothing_allowed_error(row)
        if row.sampling.is_greedy:
            token_id = int(np.argmax(adjusted))
        else:
            weights = kept_weights(adjusted, row.sampling)
            token_id = draw(weights, uniform(row.seed, row.position))
        if not wants_logprobs:
            return SampledToken(token_id, math.nan)
        return self._with_logprobs(logits, token_id, row.top_logprobs_num, row.token_ids_logprob)

    def _knows(self, row: SampleRow) -> bool:
        named = [*row.banned_ids, *row.token_ids_logprob, *row.sampling.logit_bias]
        return all(0 <= token_id < self.vocab_size for token_id in named)

    def _with_logprobs(
        self, logits: FloatArray, token_id: int, num_top: int, chosen: Sequence[int]
    ) -> SampledToken:
        logprobs = log_softmax(logits)
        order = np.argsort(-logits.astype(np.float64), kind="stable")[:num_top]
        return SampledToken(
            token_id,
            float(logprobs[token_id]),
            tuple((int(index), float(logprobs[index])) for index in order),
            tuple((index, float(logprobs[index])) for index in chosen),
        )


def _allowed(mask: NDArray[np.uint32], vocab_size: int) -> NDArray[np.bool_]:
    bits = np.unpackbits(mask.astype("<u4").view(np.uint8), bitorder="little")
    return bits[:vocab_size].astype(bool)


def _capped(value: np.float32) -> np.float32:
    return min(value, LARGEST)  # an infinite bias makes a token certain


def _is_sound(logits: FloatArray) -> bool:
    return bool(np.isfinite(logits.max()))  # NaN wins a maximum
