"""What the twin is built from, against independent sources."""

from __future__ import annotations

import numpy as np
import pytest

from espalier.engine.sampler_reference import WEIGHT_QUANTUM, draw, exp_weights, philox, uniform

# Known answers published with the Random123 library (counter, key, result), philox4x32 with 10
# rounds.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(counter: str, key: str, expected: str) -> None:
    words = [[int(word, 16) for word in text.split()] for text in (counter, key, expected)]
    assert list(philox(words[0], words[1])) == words[2]


def test_uniform_fills_the_unit_interval_evenly() -> None:
    values = np.asarray([uniform(seed, position) for seed in range(50) for position in range(40)])
    assert values.min() >= 0
    assert values.max() < 1
    counts = np.histogram(values, bins=20, range=(0, 1))[0]
    assert ((counts - 100) ** 2 / 100).sum() < 50  # 19 degrees of freedom


def test_weights_are_the_exponential_to_float32_and_multiples_of_the_quantum() -> None:
    x = np.linspace(-40, 0, 400_001).astype(np.float32)
    weights = exp_weights(x)
    exact = np.exp(x.astype(np.float64))
    assert weights.dtype == np.float32
    assert np.all(np.abs(weights - exact) <= 2.5e-7 * exact + WEIGHT_QUANTUM / 2)
    assert np.all(np.diff(weights) >= 0)
    multiples = weights.astype(np.float64) / WEIGHT_QUANTUM
    assert np.array_equal(multiples, np.round(multiples))
    assert weights[-1] == 1.0


def test_sums_of_weights_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(0)
    weights = exp_weights((-40 * rng.random(2**20)).astype(np.float32)).astype(np.float64)
    total = sum(int(weight / WEIGHT_QUANTUM) for weight in weights)
    assert np.cumsum(weights)[-1] == total * WEIGHT_QUANTUM
    assert np.cumsum(np.sort(weights))[-1] == total * WEIGHT_QUANTUM


def test_draw_never_takes_a_token_without_weight() -> None:
    weights = np.asarray([0, 0, 0.25, 0, 0.75, 0], np.float32)
    assert draw(weights, 0.0) == 2
    assert draw(weights, np.nextafter(0.25, 0)) == 2
    assert draw(weights, 0.25) == 4
    assert draw(weights, np.nextafter(1, 0)) == 4
