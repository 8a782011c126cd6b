"""Values that all layers share: prompts, sampling parameters, token logprobs, usage.

A leaf: it knows the errors and nothing else of Espalier.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any

from espalier.errors import EspalierError, SamplingError, UnsupportedError, shown

GREEDY_TEMPERATURE = 1e-6  # below it a temperature means greedy, as in the reference
NO_TOP_K = -1
MAX_STOP_CHARACTERS = 32_768  # of all stop strings of a request together
MAX_STOP_REGEX = 16
MAX_STOP_REGEX_CHARACTERS = 4_096  # of all of them together


def whole_number(name: str, value: Any, error: type[EspalierError] = SamplingError) -> int:
    """An int of a whole number, numpy's too; a bool is none. Raises `error` for anything else."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise error(f"{name} is {shown(value)}; a whole number is allowed.")
    return int(value)


def real_number(name: str, value: Any, error: type[EspalierError] = SamplingError) -> float:
    """A float of a number, numpy's too; a bool is none. Raises `error` for anything else.

    Infinities and NaN are left to the caller.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise error(f"{name} is {shown(value)}; a number is allowed.")
    try:
        return float(value)
    except OverflowError:
        raise error(f"{name} is {shown(value)}; a number up to 1e308 is allowed.") from None


def flag(name: str, value: Any, error: type[EspalierError] = SamplingError) -> bool:
    """The bool itself. Raises `error` for anything else, for "no" is true."""
    if not isinstance(value, bool):
        raise error(f"{name} is {shown(value)}; True or False is allowed.")
    return value


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

    `prompt_tokens = cached_tokens + computed_tokens`; `forced_tokens` are those of the generated
    ones that a constraint decided, without a choice by the model.
    Times are seconds. `ttft_s` and `queue_s` are means, None where no backend told of any. A call's
    `wall_s` is what it took; the `wall_s` of several goes from the first start to the last end,
    and `call_sum_s` counts calls that ran side by side each. Start and end are readings of
    `time.perf_counter`; times of calls are not compared by `==`.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    forced_tokens: int = 0
    computed_tokens: int = 0
    generated_tokens: int = 0
    ttft_sum_s: float = 0.0
    ttft_count: int = 0
    queue_sum_s: float = field(default=0.0, compare=False)  # before a backend began with it
    queue_count: int = field(default=0, compare=False)
    call_sum_s: float = field(default=0.0, compare=False)
    started_at_s: float | None = field(default=None, compare=False)  # of the first call
    ended_at_s: float | None = field(default=None, compare=False)  # of the last call

    def add(self, other: Usage) -> None:
        """Adds the counts of `other` to this one; the span from start to end grows around both."""
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.started_at_s is not None:
            own = self.started_at_s
            self.started_at_s = other.started_at_s if own is None else min(own, other.started_at_s)
        if other.ended_at_s is not None:
            own = self.ended_at_s
            self.ended_at_s = other.ended_at_s if own is None else max(own, other.ended_at_s)

    def took(self, started_at_s: float, ended_at_s: float) -> None:
        """Notes when the one call that this counts began and ended."""
        self.started_at_s, self.ended_at_s = started_at_s, ended_at_s
        self.call_sum_s = ended_at_s - started_at_s

    @property
    def hit_rate(self) -> float:
        """Cached prompt tokens / prompt tokens (paper section 3); 0 without a prompt."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def ttft_s(self) -> float | None:
        """Mean time to first token in seconds, or None."""
        return self.ttft_sum_s / self.ttft_count if self.ttft_count else None

    @property
    def queue_s(self) -> float | None:
        """Mean time that calls waited in the backend before work on them began, or None."""
        return self.queue_sum_s / self.queue_count if self.queue_count else None

    @property
    def wall_s(self) -> float:
        """Seconds from the start of the first call to the end of the last one; 0 without any."""
        if self.started_at_s is None or self.ended_at_s is None:
            return 0.0
        return self.ended_at_s - self.started_at_s


_SUMMED = tuple(
    entry.name for entry in fields(Usage) if entry.name not in ("started_at_s", "ended_at_s")
)


def _as_tuple(name: str, value: Any, kind: type, what: str) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, kind) and not isinstance(value, bool):
        return (value,)
    if hasattr(value, "tolist"):  # an array
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return tuple(value)
    raise SamplingError(f"{name} is {shown(value)}; {what} or a list of such is allowed.")


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample one request; field names are those of the reference's wire format.

    Raises SamplingError on a value out of range or a contradiction, when made; whether each
    `stop_regex` can be used is found out later (constrain/stop_regex.py).
    `max_new_tokens = 0` means: prefill (and score) only.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    stop_regex: tuple[str, ...] = ()
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
        for name in ("stop", "stop_regex"):
            set_field(self, name, _as_tuple(name, getattr(self, name), str, "text"))
        token_ids = _as_tuple("stop_token_ids", self.stop_token_ids, Integral, "a token id")
        token_ids = tuple(whole_number("stop_token_ids", token_id) for token_id in token_ids)
        set_field(self, "stop_token_ids", token_ids)
        set_field(self, "logit_bias", _as_bias(self.logit_bias))
        for name in ("max_new_tokens", "min_new_tokens", "n", "top_k"):
            set_field(self, name, whole_number(name, getattr(self, name)))
        for name in ("ignore_eos", "skip_special_tokens", "no_stop_trim"):
            flag(name, getattr(self, name))
        for name, low, high, open_low in _FLOAT_RANGES:
            set_field(self, name, _in_range(name, getattr(self, name), low, high, open_low))
        if self.sampling_seed is not None:
            set_field(self, "sampling_seed", whole_number("sampling_seed", self.sampling_seed))
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
        _check_texts("stop", self.stop, MAX_STOP_CHARACTERS)
        _check_texts("stop_regex", self.stop_regex, MAX_STOP_REGEX_CHARACTERS)
        if len(self.stop_regex) > MAX_STOP_REGEX:
            raise SamplingError(
                f"stop_regex holds {len(self.stop_regex)} expressions; {MAX_STOP_REGEX} are "
                "allowed. Join them by | into fewer."
            )

    @property
    def is_greedy(self) -> bool:
        """True where the most probable token is always taken."""
        return self.temperature < GREEDY_TEMPERATURE

    @property
    def has_penalty(self) -> bool:
        """True where tokens that were there before count."""
        return (
            self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
        )

    @classmethod
    def from_wire(cls, values: Mapping[str, Any] | None) -> SamplingParams:
        """Makes parameters from the reference's dict; an unknown key is an error."""
        if values is not None and not isinstance(values, Mapping):
            raise SamplingError(f"sampling_params is {shown(values)}; a dict is allowed.")
        values = {key: value for key, value in (values or {}).items() if value is not None}
        if values.pop("spaces_between_special_tokens", True) is not True:
            raise UnsupportedError(
                "spaces_between_special_tokens=False is not supported: tokens are decoded as they "
                "are, without added spaces. Leave it out."
            )
        allowed = {entry.name for entry in fields(cls)}
        unknown = sorted(str(name) for name in values if name not in allowed)
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


def _check_texts(name: str, texts: tuple[Any, ...], max_characters: int) -> None:
    for text in texts:
        if not isinstance(text, str) or not text:
            raise SamplingError(
                f"{name} holds {shown(text)}; non-empty strings are allowed. "
                "Leave it out to stop at the end of the text only."
            )
    num_characters = sum(map(len, texts))
    if num_characters > max_characters:
        raise SamplingError(
            f"the {len(texts)} texts of {name} have {num_characters} characters; "
            f"{max_characters} together are allowed."
        )


def _in_range(name: str, value: Any, low: float, high: float, open_low: bool) -> float:
    number = real_number(name, value)
    if not math.isfinite(number):
        raise SamplingError(f"{name} is {number}; a finite number is allowed.")
    if number < low or number > high or (open_low and number == low):
        allowed = f"more than {low}" if open_low else f"{low}"
        allowed += " and more" if high == math.inf else f" to {high}"
        raise SamplingError(f"{name} is {number}; {allowed} is allowed.")
    return number


def _as_bias(value: Any) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise SamplingError(
            f"logit_bias is {shown(value)}; a dict of token ids with what is added to their logits "
            "is allowed."
        )
    bias: dict[int, float] = {}
    for key, amount in value.items():
        is_json_key = isinstance(key, str) and key.isascii() and key.isdecimal()
        token_id = int(key) if is_json_key else whole_number("a key of logit_bias", key)
        number = real_number(f"logit_bias[{token_id}]", amount)
        if math.isnan(number):
            raise SamplingError(f"logit_bias[{token_id}] is {number}; a number is allowed.")
        bias[token_id] = number
    return bias
