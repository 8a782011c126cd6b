"""Options of a run, and how they, a gen's own values and the chat template's stops combine.

Rule (reference section 3): the gen's value if it is not None, else the run's, else the default.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from espalier.backends.base import LogprobOptions
from espalier.errors import SamplingError, UserInputError
from espalier.lang.limits import seconds
from espalier.types import SamplingParams, flag

# Names that `run` takes, and the field of SamplingParams that each sets.
SAMPLING_NAMES: dict[str, str] = {
    "max_new_tokens": "max_new_tokens",
    "n": "n",
    "stop": "stop",
    "stop_token_ids": "stop_token_ids",
    "stop_regex": "stop_regex",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "ignore_eos": "ignore_eos",
}
# Espalier's own: where a program has a parameter of such a name, the name is the program's.
YIELDING_NAMES = {"repetition_penalty": "repetition_penalty", "logit_bias": "logit_bias"}
LOGPROB_NAMES = (
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "return_text_in_logprobs",
)
SEED_NAME, TIMEOUT_NAME, TRACE_NAME = "seed", "timeout", "trace"  # yield likewise
CONTROL_NAMES = ("stream", "backend", "use_thread")
RESERVED_NAMES = frozenset((*SAMPLING_NAMES, *LOGPROB_NAMES, *CONTROL_NAMES))
OPTION_NAMES = RESERVED_NAMES.union(YIELDING_NAMES, (TIMEOUT_NAME, SEED_NAME, TRACE_NAME))

STOP_NAMES = ("stop", "stop_token_ids", "stop_regex")  # options that end a text where it says so
NUMBER_STOPS = (" ", "\n")  # added to the stops of dtype int and float


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What one run sets for all of its calls.

    Attributes:
        sampling: values by field name of SamplingParams, only those given.
        logprobs: values by field name of LogprobOptions, only those given.
        seed: seed of the whole run; each call derives its own from it.
        stream: the body runs in a thread and `run` returns at once.
        backend: what was given as backend, or None.
        timeout_s: seconds that the run may take, body and calls; None: as long as it takes.
        use_thread: false waits for each operation before the body goes on.
        trace: the run is recorded, for `state.show()`.
    """

    sampling: Mapping[str, Any] = field(default_factory=dict)
    logprobs: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    stream: bool = False
    backend: Any = None
    use_thread: bool = True
    timeout_s: float | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        flag("stream", self.stream, UserInputError)
        flag("use_thread", self.use_thread, UserInputError)
        flag("trace", self.trace, UserInputError)


def split_options(
    given: Mapping[str, Any], program_parameters: frozenset[str]
) -> tuple[RunOptions, dict[str, Any]]:
    """Splits keywords given to `run` into its options and the program's own arguments."""
    sampling: dict[str, Any] = {}
    logprobs: dict[str, Any] = {}
    control: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in given.items():
        if name in SAMPLING_NAMES:
            _keep(sampling, SAMPLING_NAMES[name], value)
        elif name in LOGPROB_NAMES:
            _keep(logprobs, name, value)
        elif name in CONTROL_NAMES:
            control[name] = value
        elif name in program_parameters:
            rest[name] = value
        elif name in YIELDING_NAMES:
            _keep(sampling, YIELDING_NAMES[name], value)
        elif name in (SEED_NAME, TRACE_NAME):
            _keep(control, name, value)
        elif name == TIMEOUT_NAME:
            control["timeout_s"] = seconds(value)
        else:
            rest[name] = value
    if sampling or "seed" in control:
        _checked(SamplingParams(**{**sampling, "sampling_seed": control.get("seed")}))
    return RunOptions(sampling=sampling, logprobs=logprobs, **control), rest


def _checked(sampling: SamplingParams) -> SamplingParams:
    """The parameters, whose expressions can be used; raises SamplingError."""
    if sampling.stop_regex:
        from espalier.constrain.stop_regex import check_stop_regex

        check_stop_regex(sampling.stop_regex)
    return sampling


def _keep(values: dict[str, Any], name: str, value: Any) -> None:
    if value is not None:
        values[name] = value


def resolve_sampling(
    defaults: Mapping[str, Any],
    given: Mapping[str, Any],
    is_number: bool,
    template_stop: tuple[str, ...],
) -> SamplingParams:
    """The parameters of one generation; raises SamplingError.

    `is_number`: it is to be an int or a float, which ends at a space or at the end of a line.
    """
    names = {**defaults, **given}
    try:
        return _resolved(tuple(names.items()), _kinds(names), is_number, template_stop)
    except TypeError:  # a list of stops, say, which no cache can look up
        return _combined(names, is_number, template_stop)


def _kinds(values: Mapping[str, Any]) -> tuple[type, ...]:
    """Types of the values: 1, 1.0 and True are equal, and not all of them allowed."""
    return tuple(map(type, values.values()))


@functools.lru_cache(maxsize=1024)
def _resolved(
    items: tuple[tuple[str, Any], ...],
    kinds: tuple[type, ...],
    is_number: bool,
    template_stop: tuple[str, ...],
) -> SamplingParams:
    return _combined(dict(items), is_number, template_stop)


def _combined(
    names: Mapping[str, Any], is_number: bool, template_stop: tuple[str, ...]
) -> SamplingParams:
    own = _checked(SamplingParams(**names))
    if is_number and own.min_new_tokens:
        raise SamplingError(
            f"min_new_tokens is {own.min_new_tokens} for a number, which ends where it is whole; "
            "leave min_tokens out, or ask for more digits by regex."
        )
    added = (*template_stop, *(NUMBER_STOPS if is_number else ()))
    more = [item for item in added if item not in own.stop]
    return replace(own, stop=(*own.stop, *more)) if more else own


def resolve_logprobs(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> LogprobOptions:
    """The log-probability options of one generation; raises SamplingError."""
    if not defaults and not given:
        return _NO_LOGPROBS
    return LogprobOptions(**{**defaults, **given})


_NO_LOGPROBS = LogprobOptions()

_DTYPES: dict[Any, str] = {int: "int", float: "float", bool: "bool", str: "str"}
_DTYPES.update({name: name for name in _DTYPES.values()})


def dtype_name(dtype: Any) -> str | None:
    """ "int", "float", "bool" or "str" for the type or its name; raises UserInputError."""
    if dtype is None:
        return None
    try:
        return _DTYPES[dtype]
    except (KeyError, TypeError):
        raise UserInputError(
            f"dtype is {dtype!r}; int, float, bool, str or their names are allowed."
        ) from None
