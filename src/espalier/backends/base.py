"""What a program needs of a backend. The language knows this file and no particular backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from espalier.constraint import Constraint
from espalier.errors import SamplingError
from espalier.types import Prompt, SamplingParams, TokenLogprob, Usage, flag, whole_number

Message = dict[str, Any]  # {"role": str, "content": str}
# (sample index, new text of whole characters, meta_info so far), in order, on the loop's thread
OnDelta = Callable[[int, str, Mapping[str, Any]], None]

_SEED_BITS = 63
_MASK_64 = (1 << 64) - 1


def finish_type(meta: Mapping[str, Any]) -> str | None:
    """Why a text ended, "stop" or "length" say; None where its meta_info does not tell.

    Some services give `finish_reason` as this text alone and not as {"type": ...}.
    """
    reason = meta.get("finish_reason")
    if isinstance(reason, Mapping):
        reason = reason.get("type")
    return None if reason is None else str(reason)


def derive_seed(seed: int, *parts: int) -> int:
    """A seed made of a seed and a path of numbers: the same everywhere, 0 to 2**63 - 1.

    Mixes by SplitMix64 (Steele, Lea and Flood 2014), so that neighbouring paths are unrelated.
    """
    state = seed & _MASK_64
    for part in parts:
        state = (state + 0x9E3779B97F4A7C15 * ((part & _MASK_64) + 1)) & _MASK_64
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK_64
        state ^= state >> 31
    return state >> (64 - _SEED_BITS)


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """Which log-probabilities a call returns in its meta_info (reference section 3).

    Raises SamplingError for a value of the wrong kind, below its range, or without effect.
    """

    return_logprob: bool = False
    logprob_start_len: int = -1  # -1: of the output only
    top_logprobs_num: int = 0
    return_text_in_logprobs: bool = False

    def __post_init__(self) -> None:
        for name in ("return_logprob", "return_text_in_logprobs"):
            flag(name, getattr(self, name))
        for name, low in (("logprob_start_len", -1), ("top_logprobs_num", 0)):
            value = whole_number(name, getattr(self, name))
            if value < low:
                raise SamplingError(f"{name} is {value}; a whole number from {low} is allowed.")
            object.__setattr__(self, name, value)
        idle = [
            name
            for name in ("logprob_start_len", "top_logprobs_num", "return_text_in_logprobs")
            if getattr(self, name) not in (-1, 0)  # 0 is False, and the reference's own default
        ]
        if idle and not self.return_logprob:
            raise SamplingError(f"{', '.join(idle)} given without return_logprob=True; add it.")


class CallSite(NamedTuple):
    """Where in a program a call stands: the variable that it sets, and its source line."""

    variable: str | None
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class Chat:
    """The messages in a prompt, for backends that send messages.

    Attributes:
        messages: the closed ones, without a default system message of the template.
        open_role: the role that is open, or None.
        open_text: the text of the open message so far.
        state_id: a text that the calls of one state share.
    """

    messages: tuple[Message, ...] = ()
    open_role: str | None = None
    open_text: str = ""
    state_id: str = ""


@dataclass(frozen=True, slots=True)
class GenerateCall:
    """One generation after a prompt, whose text must have a form where `constraint` is given.

    `seed_key` tells this call from the other calls of the process, the same way in each run of a
    program; a backend that samples by itself mixes it with its own seed where
    `sampling.sampling_seed` is None. `site` is for backends that report on a program's parts.
    """

    prompt: Prompt
    sampling: SamplingParams
    logprobs: LogprobOptions = LogprobOptions()
    constraint: Constraint | None = None
    seed_key: int = 0
    chat: Chat | None = None  # where the backend `reads_chat`
    site: CallSite | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled continuation. `token_ids` is None where the service does not tell.

    `token_ids` are the tokens that stand for exactly `text`, so that the state can keep them; a
    trimmed stop string or end token is not among them. `forced_spans` are the (start, end) among
    them that a constraint decided without a choice by the model; None where the service does not
    tell which.
    """

    text: str
    token_ids: tuple[int, ...] | None
    meta_info: dict[str, Any]
    forced_spans: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """The samples of one GenerateCall (`sampling.n` of them) and what they cost."""

    samples: tuple[Sample, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class ScoreCall:
    """Log-probabilities of each choice after a prompt."""

    prompt: Prompt
    choices: tuple[str, ...]
    needs_unconditional: bool = False
    site: CallSite | None = None


@dataclass(frozen=True, slots=True)
class ChoiceScores:
    """Token log-probabilities of each choice, scored exactly from the prompt's last character.

    `token_logprobs[i]` sums to log P(text of choice i | prompt) for the canonical tokenisation of
    the choice after the prompt; where the boundary lies inside a token, the first entry holds the
    conditional probability of the rest. `unconditional[i]` are those of the choice alone.
    """

    token_logprobs: tuple[tuple[TokenLogprob, ...], ...]
    unconditional: tuple[tuple[TokenLogprob, ...], ...] | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class ChooseCall:
    """A selection for a backend that has `choose`: it decides by itself."""

    prompt: Prompt
    choices: tuple[str, ...]
    temperature: float
    method: Any  # the choices method of the language, for backends that can follow it
    chat: Chat | None = None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What such a backend decided."""

    text: str
    meta_info: dict[str, Any]
    usage: Usage


class RoleTemplate(Protocol):
    """Text around the messages of a chat, as the model was trained on."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end an assistant's message besides the model's own end tokens."""
        ...

    def opening(self, role: str, history: Sequence[Message]) -> str:
        """Text that comes before a message of `role`, after the messages of `history`.

        For a first message that is not the system's it holds the template's default system
        message, where there is one. Raises ChatTemplateError for a role that it does not know.
        """
        ...

    def closing(self, role: str, history: Sequence[Message]) -> str:
        """Text that ends a message of `role` that comes after the messages of `history`."""
        ...


@runtime_checkable
class TellsOffsets(Protocol):
    """A backend that also tells where tokens lie in the text; for drawing a run."""

    def prompt_offset(self, prompt: Prompt, num_tokens: int) -> int:
        """Characters of a prompt's text that its first `num_tokens` tokens stand for."""
        ...

    def token_offsets(self, token_ids: Sequence[int]) -> list[int]:
        """Where each generated token begins in their text, and where the last one ends."""
        ...


class Backend(Protocol):
    """Runs the calls of programs. Safe to use from many tasks of one event loop.

    Cancelling the task that awaits a call cancels the call.

    Some have more, which the language looks for: `reads_chat = True` has each call carry its
    `Chat`; `async choose(ChooseCall) -> Chosen` takes the place of `score`; `begin_program` and
    `end_program` of a state's id are told when a program's body begins and ends.
    """

    @property
    def model_name(self) -> str:
        """Name of the model, for reports."""
        ...

    def role_template(self) -> RoleTemplate:
        """The chat template; raises ChatTemplateError where the model has none."""
        ...

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        """Generates; `on_delta` gets the text as it comes. Raises EspalierError."""
        ...

    async def score(self, call: ScoreCall) -> ChoiceScores:
        """Scores choices. Raises EspalierError."""
        ...

    async def prefill(self, prompt: Prompt) -> Usage:
        """Computes and caches a prompt without generating."""
        ...

    def flush_cache(self) -> bool:
        """Empties the prefix cache; true if it is empty now."""
        ...

    def server_info(self) -> dict[str, Any]:
        """What the backend runs and how it fares; JSON values."""
        ...

    def shutdown(self) -> None:
        """Ends the backend; later calls raise EngineClosedError."""
        ...
