"""Values that all layers share: prompts, sampling parameters, token logprobs, usage.

A leaf: it knows the errors and nothing else of Espalier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from espalier.errors import SamplingError, UnsupportedError

GREEDY_TEMPERATURE = 1e-6  # below it a temperature means greedy, as in the reference
NO_TOP_K = -1


@dataclass(frozen=True, slots=True)
class TextSegment:
    """Constant text of a prompt, not yet tokenised.

    Neighbouring text segments are tokenised together, whatever their flags. Where
    `allow_special` is false, text that spells a control token stays plain text.
    """

    text: str
    allow_special: bool = True


@dataclass(frozen=True, slots=True)
class TokenSegment:
    """Tokens that a model generated, kept as they were generated, with their text."""

    token_ids: tuple[int, ...]
    text: str


Segment = TextSegment | TokenSegment
Prompt = tuple[Segment, ...]


def prompt_text(prompt: Prompt) -> str:
    """The whole text of a prompt."""
    return "".join(segment.text for segment in prompt)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its natural log-probability (None for a first prompt token)."""

    logprob: float | None
    token_id: int
    text: str | None = None

    def as_wire(self) -> tuple[float | None, int, str | None]:
        """The reference's form: (logprob, token_id, text or None)."""
        return (self.logprob, self.token_id, self.text)


@dataclass(frozen=True, slots=True)
class FinishReason:
    """Why a generation ended: type "stop" (with what matched), "length" or "abort"."""

    type: str
    matched: str | int | None = None
    length: int | None = None
    message: str | None = None

    def as_wire(self) -> dict[str, Any]:
        """The reference's form, without the fields that are not set."""
        values = {"type": self.type, "matched": self.matched, "length": self.length}
        values["message"] = self.message
        return {key: value for key, value in values.items() if value is not None}


@dataclass(slots=True)
class Usage:
    """Token and time counts of one call, program, batch or engine; they add up.

    `prompt_tokens = cached_tokens + computed_tokens` (+ forced tokens that belong to a prompt).
    Times are seconds; `ttft_s` is None until a first token exists, and the sum keeps the mean
    through `ttft_count`.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    forced_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    ttft_sum_s: float = 0.0
    ttft_count: int = 0

    def add(self, other: Usage) -> None:
        """Adds the counts of `other` to this one."""
        for entry in fields(self):
            setattr(self, entry.name, getattr(self, entry.name) + getattr(other, entry.name))

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens / prompt tokens (paper section 3); 0 without a prompt."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def ttft_s(self) -> float | None:
        """Mean time to first token in seconds, or None."""
        return self.ttft_sum_s / self.ttft_count if self.ttft_count else None


def _as_tuple(name: str, value: Any, kind: type) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, kind) and not isinstance(value, bool):
        return (value,)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return tuple(value)
    raise SamplingError(f"{name} is {value!r}; a {kind.__name__} or a list of them is allowed.")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample one request; field names are those of the reference's wire format.

    Raises SamplingError on a value out of range or a contradiction, when made.
    `max_new_tokens = 0` means: prefill (and score) only.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = NO_TOP_K
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    ignore_eos: bool = False
    sampling_seed: int | None = None
    skip_special_tokens: bool = True
    no_stop_trim: bool = False

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        set_field(self, "stop", _as_tuple("stop", self.stop, str))
        set_field(self, "stop_token_ids", _as_tuple("stop_token_ids", self.stop_token_ids, int))
        set_field(self, "logit_bias", _as_bias(self.logit_bias))
        for name in ("max_new_tokens", "min_new_tokens", "n", "top_k"):
            _check_whole(name, getattr(self, name))
        for name, low, high, open_low in _FLOAT_RANGES:
            _check_float(name, getattr(self, name), low, high, open_low)
        self._check_bounds()

    def _check_bounds(self) -> None:
        if self.max_new_tokens < 0:
            raise SamplingError(f"max_new_tokens is {self.max_new_tokens}; 0 or more is allowed.")
        if not 0 <= self.min_new_tokens <= self.max_new_tokens:
            raise SamplingError(
                f"min_new_tokens is {self.min_new_tokens}; 0 to max_new_tokens "
                f"({self.max_new_tokens}) is allowed."
            )
        if not 1 <= self.n <= 256:
            raise SamplingError(f"n is {self.n}; 1 to 256 samples are allowed.")
        if self.top_k != NO_TOP_K and self.top_k < 1:
            raise SamplingError(f"top_k is {self.top_k}; -1 (off) or 1 and more is allowed.")
        for stop in self.stop:
            if not isinstance(stop, str) or not stop:
                raise SamplingError(
                    f"stop holds {stop!r}; non-empty strings are allowed. "
                    "Leave it out to stop at the end of the text only."
                )
        for token_id in self.stop_token_ids:
            _check_whole("stop_token_ids", token_id)
        if self.sampling_seed is not None:
            _check_whole("sampling_seed", self.sampling_seed)

    @property
    def is_greedy(self) -> bool:
        """True where the most probable token is always taken."""
        return self.temperature < GREEDY_TEMPERATURE

    @classmethod
    def from_wire(cls, values: Mapping[str, Any] | None) -> SamplingParams:
        """Makes parameters from the reference's dict; an unknown key is an error."""
        values = {key: value for key, value in (values or {}).items() if value is not None}
        if values.pop("spaces_between_special_tokens", True) is not True:
            raise UnsupportedError(
                "spaces_between_special_tokens=False is not supported: tokens are decoded as they "
                "are, without added spaces. Leave it out."
            )
        allowed = {entry.name for entry in fields(cls)}
        unknown = sorted(set(values) - allowed)
        if unknown:
            raise SamplingError(
                f"unknown sampling parameter {', '.join(unknown)}; allowed are "
                f"{', '.join(sorted(allowed))}."
            )
        return cls(**values)


# (name, lowest, highest, lowest is excluded)
_FLOAT_RANGES = (
    ("temperature", 0.0, math.inf, False),
    ("top_p", 0.0, 1.0, True),
    ("min_p", 0.0, 1.0, False),
    ("frequency_penalty", -2.0, 2.0, False),
    ("presence_penalty", -2.0, 2.0, False),
    ("repetition_penalty", 0.0, 2.0, True),
)


def _check_whole(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise SamplingError(f"{name} is {value!r}; a whole number is allowed.")


def _check_float(name: str, value: Any, low: float, high: float, open_low: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise SamplingError(f"{name} is {value!r}; a finite number is allowed.")
    if value < low or value > high or (open_low and value == low):
        bracket = "(" if open_low else "["
        raise SamplingError(f"{name} is {value}; {bracket}{low}, {high}] is allowed.")


def _as_bias(value: Any) -> dict[int, float]:
    bias: dict[int, float] = {}
    for key, amount in dict(value or {}).items():
        try:
            token_id = int(key)
        except (TypeError, ValueError):
            raise SamplingError(
                f"logit_bias has the key {key!r}; token ids (whole numbers) are allowed."
            ) from None
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or math.isnan(amount):
            raise SamplingError(f"logit_bias[{token_id}] is {amount!r}; a number is allowed.")
        bias[token_id] = float(amount)
    return bias
