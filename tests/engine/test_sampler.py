"""The native sampler against its numpy twin, and what it promises by itself."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.engine.sample_rows import assert_same_results, row, same, token
from tests.exec.native_threads import Busy

from espalier._native import ThreadPool, TokenSampler, available_isas, best_isa
from espalier.engine.sampler import SampledToken, Sampler, SampleResult, SampleRow
from espalier.engine.sampler_reference import ReferenceSampler
from espalier.engine.sampler_rows import MAX_VOCAB_SIZE, check_token_ids
from espalier.errors import BackendError, SamplingError, UnsupportedError
from espalier.exec.processors import usable_processors
from espalier.types import SamplingParams

Logits = NDArray[np.float32]

ISAS = available_isas().split(", ")


def bits(allowed: Any, vocab_size: int) -> NDArray[np.uint32]:
    mask = np.zeros((vocab_size + 31) // 32, np.uint32)
    for token_id in allowed:
        mask[token_id // 32] |= np.uint32(1 << (token_id % 32))
    return mask


# Values that meet at boundaries: ties, neighbours, exclusions, extremes.
AWKWARD = [0.0, -0.0, 1.0, np.nextafter(np.float32(1), np.float32(2)), -1.0, 1e-9, -1e-9, 30.0]
AWKWARD += [-30.0, -math.inf, 3e38, -3e38, 1e-40, 16.0, 15.0, -88.0, -104.0]
SHAPES = st.one_of(st.integers(1, 9), st.sampled_from([31, 32, 33, 63, 64, 65, 127, 200, 1000]))


@st.composite
def logits_of(draw: st.DrawFn) -> Logits:
    vocab_size = draw(SHAPES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = rng.normal(0, draw(st.sampled_from([0.01, 1.0, 4.0, 20.0])), vocab_size)
    if draw(st.booleans()):  # many ties
        values = np.round(values)
    for index, value in draw(
        st.lists(st.tuples(st.integers(0, vocab_size - 1), st.sampled_from(AWKWARD)), max_size=8)
    ):
        values[index] = value
    return values.astype(np.float32)


@st.composite
def rows_of(draw: st.DrawFn, vocab_size: int) -> SampleRow:
    ids = st.lists(st.integers(0, vocab_size - 1), max_size=6)
    share = st.one_of(st.floats(0, 1, exclude_min=True), st.sampled_from([1e-300, 0.1, 0.5, 0.9]))
    sampling = SamplingParams(
        temperature=draw(
            st.one_of(st.sampled_from([0.0, 1.0, 0.7, 2.0]), st.floats(0, 1e4), st.just(1e300))
        ),
        top_k=draw(st.one_of(st.just(-1), st.integers(1, 2 * vocab_size), st.just(10**30))),
        top_p=draw(st.one_of(st.just(1.0), share)),
        min_p=draw(st.one_of(st.just(0.0), share)),
        frequency_penalty=draw(st.one_of(st.just(0.0), st.floats(-2, 2))),
        presence_penalty=draw(st.one_of(st.just(0.0), st.floats(-2, 2))),
        repetition_penalty=draw(
            st.one_of(st.just(1.0), st.floats(0, 2, exclude_min=True, allow_subnormal=False))
        ),
        logit_bias=draw(
            st.dictionaries(
                st.integers(0, vocab_size - 1),
                st.one_of(st.floats(-100, 100), st.sampled_from([math.inf, -math.inf])),
                max_size=4,
            )
        ),
    )
    allowed = draw(st.one_of(st.none(), ids))
    return SampleRow(
        sampling,
        seed=draw(st.integers(-(2**70), 2**70)),
        position=draw(st.integers(0, 2**40)),
        prompt_ids=draw(ids),
        output_ids=draw(ids),
        banned_ids=draw(ids),
        mask=None if allowed is None else bits(allowed, vocab_size),
        want_logprob=draw(st.booleans()),
        top_logprobs_num=draw(st.sampled_from([0, 0, 1, 5, vocab_size, vocab_size + 3])),
        token_ids_logprob=draw(ids),
    )


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_sample_equals_twin_on_any_row(data: st.DataObject) -> None:
    logits = data.draw(logits_of())
    given_row = data.draw(rows_of(len(logits)))
    isa = data.draw(st.sampled_from(ISAS))
    native = Sampler(len(logits), isa)
    before = logits.copy()
    [got] = native.sample(logits[None], [given_row])
    assert logits.tobytes() == before.tobytes()
    with np.errstate(all="ignore"):
        [want] = ReferenceSampler(len(logits)).sample(logits[None], [given_row])
    same(got, want)


@pytest.mark.parametrize("vocab_size", [49_152, 262_144])
def test_sample_equals_twin_on_a_whole_vocabulary(vocab_size: int) -> None:
    rng = np.random.default_rng(1)
    logits = (rng.normal(size=(1, vocab_size)) * 3).astype(np.float32)
    native, naive = Sampler(vocab_size), ReferenceSampler(vocab_size)
    for values in (
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 5.0},
        {"top_p": 0.9},
        {"top_p": 0.999, "temperature": 3.0},
        {"top_p": 0.05},
        {"top_k": 40, "top_p": 0.8, "min_p": 0.02},
        {"top_k": 5000},
        {"min_p": 0.1},
    ):
        for seed in range(2):
            rows = [row(seed, 5, top_logprobs_num=7, **values)]
            same(native.sample(logits, rows)[0], naive.sample(logits, rows)[0])


def masks_of(vocab_size: int) -> dict[str, NDArray[np.uint32]]:
    """All kinds that a grammar makes: nearly everything, nearly nothing, and half of all tokens."""
    rng = np.random.default_rng(3)
    half = rng.integers(0, 2**32, (vocab_size + 31) // 32, dtype=np.uint32)
    return {
        "half": half,
        "few": bits([5, 64, 127, vocab_size - 1], vocab_size),
        "most": ~bits([0, 63, 1000, vocab_size - 1], vocab_size),
        "a stretch": bits(range(100, 300), vocab_size),
    }


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("vocab_size", [49_152, 5_003])
def test_changed_rows_equal_twin_on_a_whole_vocabulary(vocab_size: int, isa: str) -> None:
    rng = np.random.default_rng(4)
    logits = (rng.normal(size=(1, vocab_size)) * 3).astype(np.float32)
    native, naive = Sampler(vocab_size, isa), ReferenceSampler(vocab_size)
    output_ids = rng.integers(0, vocab_size, 700).astype(np.int32)
    prompt_ids = rng.integers(0, vocab_size, 900).astype(np.int32)
    changes: list[dict[str, Any]] = [{"mask": mask} for mask in masks_of(vocab_size).values()] + [
        {"frequency_penalty": 0.7, "presence_penalty": -0.3},
        {"repetition_penalty": 1.3, "logit_bias": {vocab_size - 1: 9.0, 3: -8.0}},
        {"repetition_penalty": 0.8, "mask": masks_of(vocab_size)["half"], "banned_ids": [1, 2]},
    ]
    for change in changes:
        for choice in ({"temperature": 0.0}, {}, {"top_p": 0.9}, {"top_k": 70}, {"min_p": 0.05}):
            given_row = row(6, 7, prompt_ids=prompt_ids, output_ids=output_ids, **change, **choice)
            same(native.sample(logits, [given_row])[0], naive.sample(logits, [given_row])[0])


@pytest.mark.parametrize("num_threads", [1, 2, 3, 8])
def test_every_number_of_threads_gives_the_same_bits(num_threads: int) -> None:
    vocab_size, num_rows = 20_000, 33
    rng = np.random.default_rng(5)
    logits = (rng.normal(size=(num_rows, vocab_size)) * 4).astype(np.float32)
    logits[7] = np.nan
    masks = list(masks_of(vocab_size).values())
    rows = [
        row(
            i,
            i,
            want_logprob=i % 3 == 0,
            top_logprobs_num=i % 4,
            mask=masks[i % 4] if i % 2 else None,
            output_ids=[i, i, 5],
            **({"temperature": 0.0} if i % 5 == 0 else {"top_p": 0.9, "presence_penalty": 0.5}),
        )
        for i in range(num_rows)
    ]
    pool = ThreadPool(num_threads, usable_processors())
    shared, alone = Sampler(vocab_size, pool=pool), Sampler(vocab_size)
    want = alone.sample(logits, rows)
    scores = alone.token_logprobs(logits, list(range(num_rows)), 3, [4, 5])
    for _ in range(3):
        assert_same_results(shared.sample(logits, rows), want)
        assert_same_results(shared.token_logprobs(logits, list(range(num_rows)), 3, [4, 5]), scores)
    pool.end_helpers()
    assert_same_results(shared.sample(logits, rows), want)


def test_one_row_is_sampled_without_the_threads() -> None:
    """However large: nobody is woken, nor waited for, where there is nothing to share."""
    vocab_size = 2**17
    pool = ThreadPool(2, 2)
    sampler = Sampler(vocab_size, pool=pool)
    logits = np.random.default_rng(10).normal(size=(1, vocab_size)).astype(np.float32)
    results: list[SampleResult] = []
    caller = threading.Thread(
        target=lambda: results.extend(sampler.sample(logits, [row(temperature=0.0)])), daemon=True
    )
    with Busy(pool):
        caller.start()
        caller.join(60)
        assert [token(result).token_id for result in results] == [int(logits.argmax())]


def test_the_instruction_set_is_the_given_one_or_the_environments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ESPALIER_ISA", raising=False)
    assert Sampler(8).isa == best_isa()
    for isa in ISAS:
        monkeypatch.delenv("ESPALIER_ISA", raising=False)
        assert Sampler(8, isa).isa == isa
        monkeypatch.setenv("ESPALIER_ISA", isa)
        assert Sampler(8).isa == isa
    monkeypatch.setenv("ESPALIER_ISA", "mmx")
    with pytest.raises(UnsupportedError, match=r"'mmx' is not available .* auto, portable"):
        Sampler(8)
    assert Sampler(8, "portable").isa == "portable"
    with pytest.raises(ValueError, match="available"):
        TokenSampler(8, "avx")


def test_sample_gives_a_row_the_same_bits_in_any_batch_and_on_any_instruction_set() -> None:
    vocab_size = 5000
    rng = np.random.default_rng(2)
    logits = (rng.normal(size=(40, vocab_size)) * 4).astype(np.float32)
    settings_of_rows: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0.5, "output_ids": [1, 2, 2]},
        {"temperature": 1.3, "min_p": 0.01, "banned_ids": [7]},
        {"temperature": 1.0, "top_k": 30, "mask": bits(range(0, vocab_size, 3), vocab_size)},
    ]
    rows = [
        row(i, 100 + i, want_logprob=True, top_logprobs_num=4, **settings_of_rows[i % 4])
        for i in range(40)
    ]
    alone = [Sampler(vocab_size).sample(logits[i : i + 1], [rows[i]])[0] for i in range(40)]
    sampler = Sampler(vocab_size)
    assert sampler.sample(logits, rows) == alone
    order = rng.permutation(40)
    shuffled = sampler.sample(logits[order], [rows[i] for i in order])
    assert shuffled == [alone[i] for i in order]
    for isa in ISAS:
        assert Sampler(vocab_size, isa).sample(logits, rows) == alone


def test_sample_depends_on_seed_and_position_alone() -> None:
    logits = np.zeros((1, 1000), np.float32)
    sampler = Sampler(1000)
    draws = {
        (seed, position): token(sampler.sample(logits, [row(seed, position)])[0]).token_id
        for seed in range(20)
        for position in range(20)
    }
    again = {key: token(sampler.sample(logits, [row(*key)])[0]).token_id for key in draws}
    assert draws == again
    assert len(set(draws.values())) > 300  # 400 draws of 1000: about 330 distinct ones
    low, high = row(5, 1), row(5 + 2**64, 1)
    drawn = [token(sampler.sample(logits, [one])[0]).token_id for one in (low, high)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 2.0, "top_k": 6},
        {"top_p": 0.8},
        {"min_p": 0.2},
        {"logit_bias": {3: 1.5}, "banned_ids": [0]},
    ],
)
def test_sample_follows_the_distribution(values: dict[str, Any]) -> None:
    """Pearson's chi-square over 4000 fixed seeds; the bound is far in the tail (p < 1e-6)."""
    logits = np.asarray([[2.0, 1.0, 0.5, 0.0, 0.0, -1.0, -2.0, 1.5, 3.0, -0.5]], np.float32)
    exact = logits[0].astype(np.float64)
    for index, bias in values.get("logit_bias", {}).items():
        exact[index] += bias
    exact[values.get("banned_ids", [])] = -np.inf
    probabilities = np.exp(exact / values.get("temperature", 1.0))
    order = np.argsort(-probabilities)
    probabilities[order[values.get("top_k", 10) :]] = 0
    probabilities /= probabilities.sum()
    reached = np.cumsum(probabilities[order])
    kept = int(np.sum(reached - probabilities[order] < values.get("top_p", 1.0)))
    probabilities[order[kept:]] = 0
    probabilities[probabilities < values.get("min_p", 0.0) * probabilities.max()] = 0
    probabilities /= probabilities.sum()

    num_draws = 4000
    rows = [row(seed, seed % 7, **values) for seed in range(num_draws)]
    results = Sampler(10).sample(np.repeat(logits, num_draws, axis=0), rows)
    counts = Counter(token(result).token_id for result in results)
    assert {index for index in counts if probabilities[index] == 0} == set()
    expected = {i: num_draws * float(p) for i, p in enumerate(probabilities) if p > 0}
    chi_square = sum((counts[i] - mean) ** 2 / mean for i, mean in expected.items())
    assert chi_square < 50.0  # at most 9 degrees of freedom


def test_greedy_takes_the_lowest_id_of_a_tie_and_costs_no_logprob() -> None:
    logits = np.zeros((1, 300), np.float32)
    logits[0, [70, 130, 299]] = 4.0
    [result] = Sampler(300).sample(logits, [row(temperature=0.0)])
    assert token(result).token_id == 70
    assert math.isnan(token(result).logprob)


def test_top_k_of_one_is_greedy_whatever_the_temperature() -> None:
    logits = np.random.default_rng(3).normal(size=(1, 500)).astype(np.float32)
    rows = [row(seed, temperature=50.0, top_k=1) for seed in range(30)]
    results = Sampler(500).sample(np.repeat(logits, 30, axis=0), rows)
    assert {token(result).token_id for result in results} == {int(logits.argmax())}


def test_tiny_top_p_keeps_the_most_probable_token() -> None:
    logits = np.random.default_rng(4).normal(size=(1, 500)).astype(np.float32)
    rows = [row(seed, temperature=9.0, top_p=1e-12) for seed in range(30)]
    results = Sampler(500).sample(np.repeat(logits, 30, axis=0), rows)
    assert {token(result).token_id for result in results} == {int(logits.argmax())}


def test_infinite_bias_makes_a_token_certain() -> None:
    logits = np.random.default_rng(5).normal(size=(1, 50)).astype(np.float32)
    for temperature in (0.0, 1.0, 100.0):
        [result] = Sampler(50).sample(
            logits, [row(temperature=temperature, logit_bias={17: math.inf}, want_logprob=True)]
        )
        assert token(result).token_id == 17
        assert token(result).logprob < 0  # of the raw logits


def test_tiny_penalty_leaves_excluded_tokens_excluded() -> None:
    logits = np.asarray([[-np.inf, -1.0]], np.float32)
    [result] = Sampler(2).sample(logits, [row(repetition_penalty=1e-300, output_ids=[0])])
    assert token(result).token_id == 1


def test_penalties_lower_tokens_that_were_there() -> None:
    logits = np.asarray([[1.0, 0.95, 0.9, -1.0]], np.float32)
    sampler = Sampler(4)

    def choice(**values: Any) -> int:
        return token(sampler.sample(logits, [row(temperature=0.0, **values)])[0]).token_id

    assert choice() == 0
    assert choice(presence_penalty=0.2, output_ids=[0]) == 1
    assert choice(presence_penalty=0.2, prompt_ids=[0]) == 0  # output only
    assert choice(frequency_penalty=0.03, output_ids=[0]) == 0
    assert choice(frequency_penalty=0.03, output_ids=[0, 0]) == 1  # 0.94 < 0.95
    assert choice(repetition_penalty=1.5, prompt_ids=[0], output_ids=[1]) == 2
    assert choice(repetition_penalty=1.5, prompt_ids=np.asarray([0, 1, 2], np.int32)) == 0
    # A negative logit is multiplied, so that a penalty always lowers it.
    assert choice(repetition_penalty=2.0, prompt_ids=[0, 1, 2, 3], banned_ids=[0, 1, 2]) == 3


def test_a_row_without_numbers_fails_alone() -> None:
    logits = np.random.default_rng(6).normal(size=(5, 100)).astype(np.float32)
    logits[1, 99] = np.nan
    logits[2, 3] = np.inf
    logits[3] = -np.inf
    sampler = Sampler(100)
    results = sampler.sample(logits, [row(temperature=float(i % 2)) for i in range(5)])
    assert [type(result) for result in results] == [
        SampledToken, BackendError, BackendError, BackendError, SampledToken,
    ]  # fmt: skip
    assert "NaN" in str(results[1])
    scored = sampler.token_logprobs(logits, [0] * 5)
    assert [type(result) for result in scored] == [type(result) for result in results]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_logits_outside_of_the_mask_may_be_any_bits(data: st.DataObject) -> None:
    logits = data.draw(logits_of())
    given_row = data.draw(rows_of(len(logits)))
    given_row.want_logprob, given_row.top_logprobs_num, given_row.token_ids_logprob = False, 0, ()
    allowed = data.draw(st.lists(st.integers(0, len(logits) - 1), max_size=40))
    given_row.mask = bits(allowed, len(logits))
    poisoned = np.full_like(logits, data.draw(st.sampled_from([math.nan, math.inf, 3e38])))
    poisoned[allowed] = logits[allowed]
    native, naive = Sampler(len(logits), data.draw(st.sampled_from(ISAS))), ReferenceSampler
    with np.errstate(all="ignore"):
        [want] = naive(len(logits)).sample(logits[None], [given_row])
        same(naive(len(logits)).sample(poisoned[None], [given_row])[0], want)
    for values in (logits, poisoned):
        same(native.sample(values[None], [given_row])[0], want)


@pytest.mark.parametrize("isa", ISAS)
def test_only_what_a_row_reads_can_break_it(isa: str) -> None:
    logits = np.zeros((1, 1000), np.float32)
    logits[0, 130], logits[0, 700], logits[0, 900] = np.nan, -np.inf, np.inf
    sampler = Sampler(1000, isa)

    def result(allowed: Sequence[int], **values: Any) -> type:
        given_row = row(0, 0, mask=bits(allowed, 1000), **values)
        [want] = ReferenceSampler(1000).sample(logits, [given_row])
        [got] = sampler.sample(logits, [given_row])
        same(got, want)
        return type(got)

    every = set(range(1000))
    assert result([3]) is SampledToken
    assert result(sorted(every - {130, 900})) is SampledToken
    assert result(sorted(every - {130})) is BackendError
    assert result([129, 130]) is BackendError
    assert result([700]) is BackendError  # no finite number
    assert result([]) is SamplingError
    assert result([3], banned_ids=[3]) is SamplingError
    assert result([3], want_logprob=True) is BackendError  # reads every logit


def test_a_row_in_which_nothing_is_allowed_names_what_ruled_tokens_out() -> None:
    logits = np.zeros((2, 100), np.float32)
    stuck = row(
        position=12, max_new_tokens=64, min_new_tokens=40, banned_ids=[3], mask=bits([3], 100)
    )
    results = Sampler(100).sample(logits, [stuck, row(temperature=0.0, mask=bits([3], 100))])
    assert isinstance(results[0], SamplingError)
    assert "position 12" in str(results[0])
    assert "min_new_tokens=40" in str(results[0])
    assert token(results[1]).token_id == 3


@pytest.mark.parametrize(
    "values",
    [
        {"logit_bias": {100: 1.0}},
        {"logit_bias": {-1: 1.0}},
        {"logit_bias": {2**40: 1.0}},
        {"banned_ids": [2**70]},
        {"token_ids_logprob": [100]},
        {"output_ids": [101], "presence_penalty": 1.0},
    ],
)
def test_a_row_that_names_a_foreign_token_fails_alone(values: dict[str, Any]) -> None:
    logits = np.zeros((2, 100), np.float32)
    results = Sampler(100).sample(logits, [row(**values), row(temperature=0.0)])
    assert isinstance(results[0], SamplingError)
    assert "0 to 99" in str(results[0])
    assert token(results[1]).token_id == 0


def test_check_token_ids_names_the_field_and_the_range() -> None:
    check_token_ids(SamplingParams(logit_bias={9: 1.0}, stop_token_ids=(0, 9)), 10)
    with pytest.raises(SamplingError, match=r"logit_bias names token 10; .* 0 to 9"):
        check_token_ids(SamplingParams(logit_bias={10: 1.0}), 10)
    with pytest.raises(SamplingError, match="stop_token_ids names token -1"):
        check_token_ids(SamplingParams(stop_token_ids=(-1,)), 10)


def test_sampler_refuses_shapes_that_do_not_fit() -> None:
    sampler = Sampler(100)
    with pytest.raises(ValueError, match=r"\[1, 99\]; \[1, 100\] is needed"):
        sampler.sample(np.zeros((1, 99), np.float32), [row()])
    with pytest.raises(ValueError, match=r"\[2, 100\]; \[1, 100\]"):
        sampler.sample(np.zeros((2, 100), np.float32), [row()])
    with pytest.raises(ValueError, match="3 words; the vocabulary needs 4"):
        sampler.sample(np.zeros((1, 100), np.float32), [row(mask=bits([], 96))])
    with pytest.raises(UnsupportedError, match=str(MAX_VOCAB_SIZE)):
        Sampler(MAX_VOCAB_SIZE + 1)


def test_token_logprobs_equal_log_softmax() -> None:
    rng = np.random.default_rng(7)
    logits = (rng.normal(size=(6, 777)) * 5).astype(np.float32)
    logits[2, 5] = -np.inf
    ids = [0, 776, 5, 63, 64, 65]
    got = Sampler(777).token_logprobs(logits, ids, 3, [5, 9])
    want = ReferenceSampler(777).token_logprobs(logits, ids, 3, [5, 9])
    for mine, theirs in zip(got, want, strict=True):
        same(mine, theirs)
    assert token(got[2]).logprob == -math.inf
    [outside] = Sampler(777).token_logprobs(logits[:1], [777])
    assert isinstance(outside, SamplingError)


def test_logprobs_are_those_of_the_raw_logits() -> None:
    logits = np.random.default_rng(8).normal(size=(1, 64)).astype(np.float32)
    plain = row(temperature=0.0, want_logprob=True, top_logprobs_num=64)
    bent = row(
        temperature=3.0, top_k=2, logit_bias={1: 5.0}, banned_ids=[2], want_logprob=True,
        top_logprobs_num=64,
    )  # fmt: skip
    [first, second] = Sampler(64).sample(np.repeat(logits, 2, axis=0), [plain, bent])
    assert token(first).top == token(second).top
    assert dict(token(second).top)[token(second).token_id] == token(second).logprob
    assert sum(math.exp(logprob) for _, logprob in token(first).top) == pytest.approx(1, abs=1e-6)
