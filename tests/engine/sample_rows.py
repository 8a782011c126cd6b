"""Rows for a sampler, and when its results are those that were wanted."""

from __future__ import annotations

from typing import Any

import pytest

from espalier.engine.sampler import SampledToken, SampleResult, SampleRow
from espalier.types import SamplingParams


def token(result: SampleResult) -> SampledToken:
    assert isinstance(result, SampledToken), result
    return result


def row(seed: int = 0, position: int = 0, **values: Any) -> SampleRow:
    extra = {
        name: values.pop(name)
        for name in list(values)
        if name not in SamplingParams.__dataclass_fields__
    }
    return SampleRow(SamplingParams(**values), seed, position, **extra)


def same(got: SampleResult, want: SampleResult) -> None:
    """Token for token. Logprobs come near only: the native exponential is a float32 polynomial,
    off by a few units of 6e-8, the twin's is float64."""
    if not isinstance(want, SampledToken):
        assert type(got) is type(want)
        assert str(got) == str(want)
        return
    got = token(got)
    assert got.token_id == want.token_id
    assert [index for index, _ in got.top] == [index for index, _ in want.top]
    assert [index for index, _ in got.chosen] == [index for index, _ in want.chosen]
    pairs = [(got.logprob, want.logprob)]
    pairs += [
        (a[1], b[1]) for a, b in zip(got.top + got.chosen, want.top + want.chosen, strict=True)
    ]
    for mine, theirs in pairs:
        assert mine == pytest.approx(theirs, abs=1e-6, rel=1e-12, nan_ok=True)


def assert_same_results(got: list[SampleResult], want: list[SampleResult]) -> None:
    assert [repr(result) for result in got] == [repr(result) for result in want]
