"""Distances between distributions, against sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bench.engine.divergence import ReferenceRows, RowScores, log_softmax, summarise
from hypothesis import given
from hypothesis import strategies as st

rows_of_logits = st.lists(st.tuples(*[st.floats(-30, 30, width=32)] * 8), min_size=1, max_size=4)


def naive_probabilities(logits: tuple[float, ...]) -> list[float]:
    total = math.fsum(math.exp(value) for value in logits)
    return [math.exp(value) / total for value in logits]


@given(rows_of_logits)
def test_scores_equal_the_sums_written_out(rows: list[tuple[float, ...]]) -> None:
    given_logits = np.array(rows, dtype=np.float32)
    reference, other = given_logits[:, :4], given_logits[:, 4:]
    follows = np.arange(len(rows), dtype=np.int64) % 4
    scores = ReferenceRows(reference, follows).scores(other)
    for index, row in enumerate(rows):
        p, q = naive_probabilities(row[:4]), naive_probabilities(row[4:])
        kl = math.fsum(a * (math.log(a) - math.log(b)) for a, b in zip(p, q, strict=True))
        assert scores.kl[index] == pytest.approx(kl, abs=1e-9)
        assert scores.nll[index] == pytest.approx(-math.log(q[follows[index]]), abs=1e-9)
        assert scores.is_best_equal[index] == (row[:4].index(max(row[:4])) == other[index].argmax())


def test_same_logits_have_no_distance() -> None:
    logits = np.array([[1.0, -np.inf, 3.0]], dtype=np.float32)
    scores = ReferenceRows(logits, np.array([2])).scores(logits)
    assert scores.kl[0] == 0
    assert scores.is_best_equal[0]


def test_log_softmax_of_large_logits_is_finite() -> None:
    assert np.allclose(log_softmax(np.array([[1e4, 1e4]], dtype=np.float32)), -math.log(2))


def test_summary_leaves_out_positions_without_a_next_token() -> None:
    parts = [
        RowScores(np.array([0.0, 0.1]), np.array([1.0, np.nan]), np.array([True, False])),
        RowScores(np.array([0.2]), np.array([3.0]), np.array([True])),
    ]
    quality = summarise(parts)
    assert quality.mean_kl == pytest.approx(0.1)
    assert quality.best_equal == pytest.approx(2 / 3)
    assert quality.perplexity == pytest.approx(math.exp(2.0))
    assert quality.num_positions == 3
