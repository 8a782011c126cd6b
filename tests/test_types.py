"""Sampling parameters: each value is taken in its exact type, or refused with a SamplingError."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from espalier.errors import SamplingError
from espalier.types import MAX_STOP_CHARACTERS, SamplingParams

WHOLE = ("max_new_tokens", "min_new_tokens", "n", "top_k", "sampling_seed")
REAL = (
    "temperature",
    "top_p",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
)
FLAGS = ("ignore_eos", "skip_special_tokens", "no_stop_trim")
COMPOUND = ("stop", "stop_token_ids", "logit_bias")

SCALARS: list[Any] = [
    *(None, True, False, np.True_, object(), object, 1j, Decimal(1), Fraction(1, 2)),
    *(0, 1, -1, 7, 300, 1 << 70, -(1 << 70), 10**400, -(10**400)),
    *(0.0, 0.5, 2.0, -0.5, 1e300, math.nan, math.inf, -math.inf),
    *(np.int64(5), np.uint8(1), np.float32(0.5), np.float64(0.5), np.float64(math.nan)),
    *("", "a", "5", "\ud800", "no", b"", b"a", np.str_("a")),
]
ANYTHING: list[Any] = [
    *SCALARS,
    *([value] for value in SCALARS),
    *((5, value) for value in SCALARS),
    *({5: value} for value in SCALARS),
    *({value: 1.0} for value in SCALARS),
    *([], (), {}, {1}, range(3), iter([1]), {"a": {}}, [[1]]),
    *(np.array([1, 2]), np.array([0.5]), np.array(3), np.array([[1]]), np.array(["a"])),
]


def check_types(made: SamplingParams) -> None:
    for name in WHOLE:
        assert type(getattr(made, name)) is int or (name == "sampling_seed")
    assert made.sampling_seed is None or type(made.sampling_seed) is int
    for name in REAL:
        assert type(getattr(made, name)) is float
        assert math.isfinite(getattr(made, name))
    for name in FLAGS:
        assert type(getattr(made, name)) is bool
    assert all(isinstance(stop, str) and stop for stop in made.stop)
    assert all(type(token_id) is int for token_id in made.stop_token_ids)
    for token_id, amount in made.logit_bias.items():
        assert type(token_id) is int
        assert type(amount) is float
        assert not math.isnan(amount)


def taken(values: dict[str, Any]) -> SamplingParams | None:
    try:
        return SamplingParams(**values)
    except SamplingError:
        return None


def taken_wire(values: Any) -> SamplingParams | None:
    try:
        return SamplingParams.from_wire(values)
    except SamplingError:
        return None


@pytest.mark.parametrize("name", WHOLE + REAL + FLAGS + COMPOUND)
def test_any_value_is_taken_in_its_exact_type_or_refused(name: str) -> None:
    made = [one for value in ANYTHING for one in (taken({name: value}), taken_wire({name: value}))]
    for one in made:
        if one is not None:
            check_types(one)
    assert 0 < made.count(None) < len(made)


def test_a_wire_dict_with_any_key_is_refused() -> None:
    for key in SCALARS:
        with pytest.raises(SamplingError, match="unknown sampling parameter"):
            SamplingParams.from_wire({key: 1})


@pytest.mark.parametrize("given", [5, "x", [1], {1}])
def test_wire_values_that_are_no_dict_are_refused(given: Any) -> None:
    with pytest.raises(SamplingError, match="a dict is allowed"):
        SamplingParams.from_wire(given)


def test_numpy_numbers_are_numbers() -> None:
    made = SamplingParams(
        temperature=np.float64(0.5),
        min_p=np.float32(0.25),
        max_new_tokens=np.int64(3),
        stop_token_ids=np.array([4, 5]),  # type: ignore[arg-type]
        logit_bias={np.int32(7): np.float32(2.0)},
    )
    assert (made.temperature, made.min_p, made.max_new_tokens) == (0.5, 0.25, 3)
    assert (made.stop_token_ids, made.logit_bias) == ((4, 5), {7: 2.0})
    check_types(made)


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", ["no", 0, 1, [], np.True_])
def test_a_flag_is_true_or_false_and_nothing_that_looks_like_it(name: str, value: Any) -> None:
    with pytest.raises(SamplingError, match=f"{name} is .*; True or False is allowed"):
        SamplingParams(**{name: value})


@pytest.mark.parametrize("bias", [{5.7: 1}, {True: 1}, {"x": 1}, {"-5": 1}, {"²": 1}, [(5, 1)], 5])
def test_a_key_of_logit_bias_is_a_token_id(bias: Any) -> None:
    with pytest.raises(SamplingError, match="logit_bias"):
        SamplingParams(logit_bias=bias)


def test_stop_strings_are_bounded_together() -> None:
    assert len(SamplingParams(stop=tuple(f"stop {i}" for i in range(1000))).stop) == 1000
    assert SamplingParams(stop=("x" * MAX_STOP_CHARACTERS,)).stop
    with pytest.raises(SamplingError, match=f"{MAX_STOP_CHARACTERS} together are allowed"):
        SamplingParams(stop=("x" * MAX_STOP_CHARACTERS, "y"))


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(SamplingError) as caught:
        SamplingParams(temperature="x" * 100_000)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 400
