"""Rotary frequencies: the plain ones (RoFormer, section 3.2) and the ways to stretch them.

Pure arithmetic in float64; it knows no file and no model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from espalier.exec.plan import Rope, RopeStyle


@dataclass(frozen=True, slots=True)
class NoScaling:
    """Frequencies as trained."""


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Every position divided by `factor` (position interpolation, arXiv 2306.15595)."""

    factor: float


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Llama 3.1: long waves slowed by `factor`, short ones kept, a smooth passage between them.

    A wave is long where fewer than `low_freq_factor` of them fit into the original context, and
    short where more than `high_freq_factor` do.
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True)
class YarnScaling:
    """YaRN (arXiv 2309.00071, section 3.2): a ramp over dimensions from kept to interpolated.

    The ramp runs between the dimensions that turn `beta_fast` and `beta_slow` times in the original
    context, rounded outwards to whole ones where `truncate` is set.
    """

    factor: float
    original_context: int
    attention_factor: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class FrequencyFactors:
    """Each frequency divided by its own factor, as a GGUF file may store them."""

    factors: tuple[float, ...]


RopeScaling = NoScaling | LinearScaling | Llama3Scaling | YarnScaling | FrequencyFactors


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotation of the first `rotary_dim` elements of each head with base `theta`."""

    theta: float
    rotary_dim: int
    style: RopeStyle
    scaling: RopeScaling = NoScaling()


def rope_table(name: str, config: RopeConfig) -> Rope:
    """The table of frequencies that a Plan holds."""
    plain = [
        config.theta ** (-element / config.rotary_dim) for element in range(0, config.rotary_dim, 2)
    ]
    scaling = config.scaling
    attention_factor = 1.0
    if isinstance(scaling, LinearScaling):
        frequencies = [frequency / scaling.factor for frequency in plain]
    elif isinstance(scaling, Llama3Scaling):
        frequencies = [_llama3(frequency, scaling) for frequency in plain]
    elif isinstance(scaling, YarnScaling):
        frequencies = _yarn(plain, config.theta, config.rotary_dim, scaling)
        attention_factor = scaling.attention_factor
    elif isinstance(scaling, FrequencyFactors):
        assert len(scaling.factors) == len(plain), (len(scaling.factors), len(plain))
        frequencies = [f / factor for f, factor in zip(plain, scaling.factors, strict=True)]
    else:
        frequencies = plain
    return Rope(name, tuple(frequencies), config.style, attention_factor)


def _llama3(frequency: float, scaling: Llama3Scaling) -> float:
    waves = scaling.original_context * frequency / (2 * math.pi)
    if waves < scaling.low_freq_factor:
        return frequency / scaling.factor
    if waves > scaling.high_freq_factor:
        return frequency
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = (waves - scaling.low_freq_factor) / span
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def _yarn(plain: list[float], theta: float, rotary_dim: int, scaling: YarnScaling) -> list[float]:
    def dimension_with(rotations: float) -> float:
        waves = scaling.original_context / (rotations * 2 * math.pi)
        return rotary_dim * math.log(waves) / (2 * math.log(theta))

    low, high = dimension_with(scaling.beta_fast), dimension_with(scaling.beta_slow)
    if scaling.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)
    if low == high:
        high += 0.001
    frequencies = []
    for index, frequency in enumerate(plain):
        interpolated = min(max((index - low) / (high - low), 0.0), 1.0)
        slowed = frequency / scaling.factor
        frequencies.append(slowed * interpolated + frequency * (1 - interpolated))
    return frequencies


def yarn_attention_factor(factor: float, mscale: float = 1.0) -> float:
    """What YaRN multiplies cosine and sine with (arXiv 2309.00071, equation 22)."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def stretched_context(scaling: RopeScaling, trained_context: int) -> int:
    """Positions that a model may use: YaRN goes on where training ended, the others do not say."""
    if isinstance(scaling, YarnScaling):
        return max(trained_context, int(scaling.factor * scaling.original_context))
    return trained_context
