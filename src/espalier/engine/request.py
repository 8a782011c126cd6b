"""What goes into the engine and what comes out: one request, its progress, its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from espalier.constraint import Constraint
from espalier.errors import EspalierError
from espalier.types import FinishReason, SamplingParams, TokenLogprob


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One sequence to prefill and sample (`sampling.n` is 1 here; callers expand n).

    Attributes:
        input_ids: prompt tokens; at least one, each inside the vocabulary.
        seed: randomness is a function of (seed, position of the sampled token) alone.
        logprob_start_len: prompt position from which input logprobs are wanted; -1 = none. Entry
            j of the result belongs to token `logprob_start_len + j`.
        top_logprobs_num: most probable tokens listed at each position with logprobs.
        token_ids_logprob: token ids whose logprob is listed at each position with logprobs.
        namespace: cache key prefix; nothing is shared across namespaces.
        constraint: the form that the text must have; None for any.
    """

    request_id: str
    input_ids: tuple[int, ...]
    sampling: SamplingParams
    seed: int = 0
    return_logprob: bool = False
    logprob_start_len: int = -1
    top_logprobs_num: int = 0
    token_ids_logprob: tuple[int, ...] = ()
    namespace: str = ""
    constraint: Constraint | None = None


@dataclass(slots=True)
class LogprobTable:
    """Log-probabilities at consecutive positions; the three lists run in step."""

    tokens: list[TokenLogprob] = field(default_factory=list)
    top: list[list[TokenLogprob]] = field(default_factory=list)
    chosen_ids: list[list[TokenLogprob]] = field(default_factory=list)  # token_ids_logprob

    def cut(self, length: int) -> None:
        """Leaves the first `length` positions."""
        for entries in (self.tokens, self.top, self.chosen_ids):
            del entries[length:]


@dataclass(slots=True)
class RequestOutput:
    """State of a request: as delivered while it streams (text and ids so far), or at its end.

    `text` holds whole characters only and never a stop string (unless `no_stop_trim`);
    `text_token_ids` are the leading output tokens that stand for `text` exactly. Where a stop
    string ends inside a token, the tokens stop before that token and the text goes on past them:
    then `text_token_ids` is None and the text must be tokenised again to continue it.
    """

    request_id: str
    text: str = ""
    output_ids: list[int] = field(default_factory=list)
    text_token_ids: list[int] | None = None
    finish_reason: FinishReason | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    forced_tokens: int = 0
    forced_spans: tuple[tuple[int, int], ...] = ()  # (start, end) in output_ids; known at the end
    retractions: int = 0
    input_logprobs: LogprobTable | None = None
    output_logprobs: LogprobTable | None = None
    ttft_s: float | None = None
    e2e_s: float | None = None
    queue_s: float | None = None


@dataclass(frozen=True, slots=True)
class RequestFailure:
    """A request that ended without a result, and why."""

    request_id: str
    error: EspalierError


EngineEvent = RequestOutput | RequestFailure
