"""How `select` decides among choices, given the log-probabilities of their tokens.

Pure functions of numbers; they know no model. A token's entry is (logprob, token_id, text or None).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

TokenEntry = Sequence[Any]  # (logprob or None, token_id, text or None)
TokenEntries = Sequence[TokenEntry]


@dataclass(frozen=True, slots=True)
class ChoicesDecision:
    """What a method decided; `scores` (one per choice) are what a temperature samples from."""

    decision: str
    meta_info: dict[str, Any] | None = None
    scores: Sequence[float] | None = None


class ChoicesMethod(Protocol):
    """Any callable with these keywords; `requires_unconditional_logprobs` is read if it is there.

    `normalized_prompt_logprobs[i]` is the mean of the log-probabilities of choice i's tokens.
    """

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenEntries],
        output_token_logprobs: Sequence[TokenEntries],
        unconditional_token_logprobs: Sequence[TokenEntries] | None = None,
    ) -> ChoicesDecision:
        """Decides; the first of equals wins."""
        ...


ChoicesSamplingMethod = ChoicesMethod  # the reference's name; classes may derive from it


def mean_logprob(entries: TokenEntries) -> float:
    """Mean log-probability of tokens, every one counted; -inf where there is none."""
    return sum(value_of(entry) for entry in entries) / len(entries) if entries else -math.inf


def value_of(entry: TokenEntry) -> float:
    """An entry's log-probability; an absent one (a first token's) counts as 0."""
    return 0.0 if entry[0] is None else float(entry[0])


def first_maximum(scores: Sequence[float]) -> int:
    """Index of the largest score, the first of equals."""
    return max(range(len(scores)), key=lambda index: (scores[index], -index))


class TokenLengthNormalized:
    """The highest mean log-probability over a choice's tokens wins."""

    requires_unconditional_logprobs = False

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenEntries],
        output_token_logprobs: Sequence[TokenEntries],
        unconditional_token_logprobs: Sequence[TokenEntries] | None = None,
    ) -> ChoicesDecision:
        """Decides by the given means."""
        scores = [float(score) for score in normalized_prompt_logprobs]
        meta = _meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        return ChoicesDecision(choices[first_maximum(scores)], meta, scores)

    def __repr__(self) -> str:
        return "token_length_normalized"


class GreedyTokenSelection:
    """Token by token, the choices whose token is the most probable stay.

    A choice shorter than the longest is padded with its own mean. A temperature samples from the
    means, as the elimination itself gives no score.
    """

    requires_unconditional_logprobs = False

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenEntries],
        output_token_logprobs: Sequence[TokenEntries],
        unconditional_token_logprobs: Sequence[TokenEntries] | None = None,
    ) -> ChoicesDecision:
        """Decides column by column."""
        length = max(len(entries) for entries in input_token_logprobs)
        means = [mean_logprob(entries) for entries in input_token_logprobs]
        matrix = [
            [value_of(entry) for entry in entries] + [mean] * (length - len(entries))
            for entries, mean in zip(input_token_logprobs, means, strict=True)
        ]
        remaining = list(range(len(choices)))
        for column in range(length):
            best = max(matrix[index][column] for index in remaining)
            remaining = [index for index in remaining if matrix[index][column] == best]
        meta = _meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        meta["greedy_logprob_matrix"] = matrix
        return ChoicesDecision(choices[remaining[0]], meta, means)

    def __repr__(self) -> str:
        return "greedy_token_selection"


class UnconditionalLikelihoodNormalized:
    """The highest mean gain of a choice's log-probabilities over those without the prompt wins."""

    requires_unconditional_logprobs = True

    def __call__(
        self,
        *,
        choices: Sequence[str],
        normalized_prompt_logprobs: Sequence[float],
        input_token_logprobs: Sequence[TokenEntries],
        output_token_logprobs: Sequence[TokenEntries],
        unconditional_token_logprobs: Sequence[TokenEntries] | None = None,
    ) -> ChoicesDecision:
        """Decides by the means of the gains."""
        if unconditional_token_logprobs is None:
            raise ValueError(
                "unconditional_likelihood_normalized needs unconditional_token_logprobs; "
                "None was given."
            )
        scores = [
            _mean_gain(entries, alone)
            for entries, alone in zip(
                input_token_logprobs, unconditional_token_logprobs, strict=True
            )
        ]
        meta = _meta(normalized_prompt_logprobs, input_token_logprobs, output_token_logprobs)
        meta["unconditional_token_logprobs"] = unconditional_token_logprobs
        meta["normalized_unconditional_prompt_logprobs"] = scores
        return ChoicesDecision(choices[first_maximum(scores)], meta, scores)

    def __repr__(self) -> str:
        return "unconditional_likelihood_normalized"


def _mean_gain(entries: TokenEntries, alone: TokenEntries) -> float:
    # The two tokenisations may differ in length at the prompt's border: totals, not pairs.
    total = sum(value_of(entry) for entry in entries)
    if not entries or total == -math.inf:
        return -math.inf
    return (total - sum(value_of(entry) for entry in alone)) / len(entries)


def _meta(
    normalized: Sequence[float], inputs: Sequence[TokenEntries], outputs: Sequence[TokenEntries]
) -> dict[str, Any]:
    return {
        "normalized_prompt_logprobs": normalized,
        "input_token_logprobs": inputs,
        "output_token_logprobs": outputs,
    }


token_length_normalized = TokenLengthNormalized()
greedy_token_selection = GreedyTokenSelection()
unconditional_likelihood_normalized = UnconditionalLikelihoodNormalized()
