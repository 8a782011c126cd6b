"""Exact scores of choices after a prompt, also where a token would cross the border.

A choice is scored by the tokens that the tokenizer gives for the prompt's last constants and the
choice together. Up to some token these are the prompt's own, for every choice: what follows there
in the prompt is its tail, as bytes. The score of a choice is

    log P(its tokens from there on | tokens before) - log P(text that begins with the tail | same)

so it is conditional on the prompt's text, and not on where the prompt alone would cut its tokens.
Without a tail the second term is zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from espalier.backends.prompt_ids import Ids, PromptEncoder, PromptIds
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.types import TokenLogprob

# Tokens that must be saved before choices that begin alike are scored in steps (of a request each).
MIN_SHARED_GAIN = 8


@dataclass(frozen=True, slots=True)
class ScoringPlan:
    """What is to be computed for some choices after one prompt.

    Attributes:
        prompt: tokens of the prompt alone.
        num_shared: leading tokens that the prompt and every choice have in common.
        sequences: tokens of prompt and choice together, for each choice.
        tail: bytes of the prompt after the shared tokens.
    """

    prompt: Ids
    num_shared: int
    sequences: tuple[Ids, ...]
    tail: bytes

    @property
    def shared(self) -> Ids:
        """The tokens that are computed once."""
        return self.prompt[: self.num_shared]


def plan_scoring(
    tokenizer: Tokenizer, encoder: PromptEncoder, prompt: PromptIds, choices: Sequence[str]
) -> ScoringPlan:
    """Tokenises each choice with the prompt's last constants and finds what is shared."""
    own = prompt.all or encoder.encode_run((), at_start=True)
    sequences = tuple(_with_choice(encoder, prompt, choice) for choice in choices)
    num_shared = common_prefix_length((own, *sequences))
    tail = bytes_of(tokenizer, own[num_shared:])
    fits = all(
        bytes_of(tokenizer, sequence[num_shared:]).startswith(tail)
        and any(not tokenizer.is_control(token_id) for token_id in sequence[num_shared:])
        for sequence in sequences
    )
    if not fits or (tail and num_shared == 0):
        # Before a first token there is nothing to be conditional on: the prompt stays as it is.
        joined = tuple(
            own + encoder.encode_run(((choice, False),), at_start=False) for choice in choices
        )
        return ScoringPlan(own, len(own), joined, b"")
    return ScoringPlan(own, num_shared, sequences, tail)


def _with_choice(encoder: PromptEncoder, prompt: PromptIds, choice: str) -> Ids:
    run = (*prompt.tail_pieces, (choice, False))
    return prompt.head + encoder.encode_run(run, at_start=not prompt.head)


def common_prefix_length(sequences: Sequence[Ids]) -> int:
    """How many leading tokens all sequences have in common."""
    first = min(sequences)
    last = max(sequences)  # the first and the last in order differ the earliest
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return length


def splits_at(sequences: Sequence[Ids], start: int) -> int | None:
    """Up to where sequences are scored as one before they branch; None where it does not pay."""
    if len(sequences) == 1:
        return None
    end = common_prefix_length(sequences)
    return end if (end - start) * (len(sequences) - 1) >= MIN_SHARED_GAIN else None


def num_scored_tokens(sequences: Sequence[Ids], start: int) -> int:
    """Tokens that scoring sequences from `start` on computes, with what they share once."""
    end = splits_at(sequences, start)
    if end is None:
        return sum(len(sequence) - start for sequence in sequences)
    return end - start + sum(num_scored_tokens(group, end) for group in branches(sequences, end))


@dataclass(frozen=True, slots=True)
class TreeScores:
    """Log-probabilities of each sequence's tokens, and how many tokens were computed for them."""

    logprobs: list[list[TokenLogprob]]
    num_computed: int


def branches(sequences: Sequence[Ids], start: int) -> list[list[Ids]]:
    """Sequences that go on after `start`, grouped by their token there."""
    groups: dict[int, list[Ids]] = {}
    for sequence in sequences:
        if len(sequence) > start:
            groups.setdefault(sequence[start], []).append(sequence)
    return list(groups.values())


def join_branches(
    sequences: Sequence[Ids],
    end: int,
    head: list[TokenLogprob],
    groups: Sequence[Sequence[Ids]],
    found: Sequence[TreeScores],
) -> TreeScores:
    """Scores of the sequences from those of their common beginning and of its branches."""
    rests: dict[Ids, list[TokenLogprob]] = {}
    for group, scores in zip(groups, found, strict=True):
        rests.update(zip(group, scores.logprobs, strict=True))
    num_computed = len(head) + sum(scores.num_computed for scores in found)
    return TreeScores([[*head, *rests.get(ids, [])] for ids in sequences], num_computed)


def bytes_of(tokenizer: Tokenizer, token_ids: Sequence[int]) -> bytes:
    """The bytes of tokens as the vocabulary has them."""
    return b"".join(tokenizer.token_bytes(token_id) for token_id in token_ids)


def choice_logprobs(
    tokenizer: Tokenizer,
    logprobs: Sequence[TokenLogprob],
    tail: bytes,
    tail_logprob: float,
) -> tuple[TokenLogprob, ...]:
    """Log-probabilities of a choice's own tokens; the first is conditional on the tail.

    `logprobs` are those from the first token that is not shared. Tokens of the tail alone are
    added to the first that reaches into the choice.
    """
    num_bytes = 0
    total = 0.0
    for count, entry in enumerate(logprobs, start=1):
        num_bytes += len(tokenizer.token_bytes(entry.token_id))
        if tail:
            assert entry.logprob is not None, "a token after shared tokens has a probability"
            total += entry.logprob
        if num_bytes > len(tail):
            first = entry if not tail else TokenLogprob(total - tail_logprob, entry.token_id)
            return (first, *logprobs[count:])
    raise AssertionError("a choice without text of its own")
