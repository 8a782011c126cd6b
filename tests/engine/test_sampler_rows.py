"""How the native sampler reads its rows: parameters once per row, token ids in every form."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.engine.sample_rows import assert_same_results, row, same, token

from espalier.engine.sampler import Sampler, SampleRow
from espalier.engine.sampler_reference import ReferenceSampler
from espalier.errors import SamplingError
from espalier.types import SamplingParams


def test_equal_parameters_of_other_requests_are_not_mixed_up() -> None:
    """Parameters are read once per row, also where many come and go at the same address."""
    sampler = Sampler(8)
    logits = np.zeros((1, 8), np.float32)
    for i in range(3_000):
        [result] = sampler.sample(logits, [row(0, 0, temperature=0.0, logit_bias={i % 8: 1.0})])
        assert token(result).token_id == i % 8


class Tracked(SamplingParams):
    """Parameters of which can be told whether they are still there."""

    __slots__ = ("__weakref__",)


def test_what_was_read_of_parameters_ends_with_their_row() -> None:
    sampler, logits = Sampler(8), np.zeros((1, 8), np.float32)
    given_row = SampleRow(Tracked(temperature=0.0, logit_bias={5: 1.0}), 0, 0)
    parameters = weakref.ref(given_row.sampling)
    for _ in range(2):
        assert token(sampler.sample(logits, [given_row])[0]).token_id == 5
    del given_row
    gc.collect()
    assert parameters() is None


def test_a_row_given_other_parameters_takes_those() -> None:
    sampler, logits = Sampler(8), np.zeros((1, 8), np.float32)
    given_row = row(temperature=0.0, logit_bias={5: 1.0})
    assert token(sampler.sample(logits, [given_row])[0]).token_id == 5
    copy = replace(given_row, sampling=SamplingParams(temperature=0.0, logit_bias={3: 1.0}))
    given_row.sampling = SamplingParams(temperature=0.0, logit_bias={6: 1.0})
    chosen = sampler.sample(np.repeat(logits, 2, axis=0), [given_row, copy])
    assert [token(result).token_id for result in chosen] == [6, 3]


def test_parameters_that_changed_between_two_requests_count_for_the_second() -> None:
    sampler, logits = Sampler(8), np.zeros((1, 8), np.float32)
    sampling = SamplingParams(temperature=0.0, logit_bias={5: 1.0})
    first = SampleRow(sampling, 0, 0)
    assert token(sampler.sample(logits, [first])[0]).token_id == 5
    sampling.logit_bias[2] = 7.0  # type: ignore[index]
    assert token(sampler.sample(logits, [first])[0]).token_id == 5  # read once
    assert token(sampler.sample(logits, [SampleRow(sampling, 0, 0)])[0]).token_id == 2


def gapped(ids: list[int]) -> NDArray[np.int32]:
    """Every second element of an array whose other elements no vocabulary has."""
    both = np.full(2 * len(ids), 2**30, np.int32)
    both[::2] = ids
    return both[::2]


FORMS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "numpy scalars": lambda ids: [np.int16(index) for index in ids],
    "int32": lambda ids: np.array(ids, np.int32),
    "int64": lambda ids: np.array(ids, np.int64),
    "uint32": lambda ids: np.array(ids, np.uint32),
    "uint16": lambda ids: np.array(ids, np.uint16),
    "big-endian": lambda ids: np.array(ids, ">i4"),
    "with gaps": gapped,
    "backwards": lambda ids: np.array(ids[::-1], np.int32)[::-1],
    "strided int64": lambda ids: np.repeat(np.array(ids, np.int64), 2)[::2],
    "read-only": lambda ids: np.frombuffer(np.array(ids, np.int32).tobytes(), np.int32),
}


@pytest.mark.parametrize("form", FORMS)
def test_ids_are_read_alike_in_every_form(form: str) -> None:
    """Many rows, so that memory which a row let go of too early is another's by then."""
    vocab_size, num_rows = 3_000, 24
    rng = np.random.default_rng(9)
    logits = (rng.normal(size=(num_rows, vocab_size)) * 2).astype(np.float32)
    names = ("prompt_ids", "output_ids", "banned_ids", "token_ids_logprob")
    rows, wanted = [], []
    for i in range(num_rows):
        ids = {name: rng.integers(0, vocab_size, 400).tolist() for name in names}
        values: dict[str, Any] = {"repetition_penalty": 1.4, "frequency_penalty": 0.3}
        formed = {name: FORMS[form](ids[name]) for name in names}
        rows.append(row(i, i, **values, **formed))
        wanted.append(row(i, i, **values, **ids))
    sampler, naive = Sampler(vocab_size), ReferenceSampler(vocab_size)
    for mine, theirs in zip(
        sampler.sample(logits, rows), naive.sample(logits, wanted), strict=True
    ):
        same(mine, theirs)
    ids = rng.integers(0, vocab_size, num_rows).tolist()
    assert_same_results(
        sampler.token_logprobs(logits, FORMS[form](ids), 2, [5, 9]),
        sampler.token_logprobs(logits, ids, 2, [5, 9]),
    )


@pytest.mark.parametrize(
    "ids",
    [
        np.array([5, 2**32 + 5]),
        np.array([-1]),
        np.array([2**63 + 5], np.uint64),
        np.array([2**31], np.uint32),
        np.array([1, 100], np.int32),
        [2**64 + 5],
    ],
)
@pytest.mark.parametrize("name", ["prompt_ids", "output_ids", "banned_ids", "token_ids_logprob"])
def test_ids_beyond_32_bits_are_foreign_and_do_not_wrap(name: str, ids: Any) -> None:
    logits = np.zeros((2, 100), np.float32)
    bad = row(repetition_penalty=1.5, **{name: ids})
    results = Sampler(100).sample(logits, [bad, row(temperature=0.0)])
    assert isinstance(results[0], SamplingError)
    assert token(results[1]).token_id == 0


@pytest.mark.parametrize("ids", [[1.0], ["1"], np.array([1.0]), np.array([[1, 2]])])
def test_ids_that_are_no_whole_numbers_are_refused(ids: Any) -> None:
    with pytest.raises(TypeError, match="integer"):
        Sampler(100).sample(np.zeros((1, 100), np.float32), [row(banned_ids=ids)])
