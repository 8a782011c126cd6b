"""Rotary frequencies against those of transformers (tests/golden/make_rope.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from espalier.errors import ModelFileError, UnsupportedError
from espalier.exec.plan import RopeStyle
from espalier.models.fields import Fields
from espalier.models.hf_rope import rope_config, rope_parameters
from espalier.models.rope import (
    FrequencyFactors,
    RopeConfig,
    YarnScaling,
    rope_table,
    stretched_context,
)

DATA = Path(__file__).parents[1] / "golden" / "data" / "rope.json"
SETTINGS: dict[str, dict[str, Any]] = json.loads(DATA.read_text())


def config_of(config: dict[str, Any]) -> RopeConfig:
    fields = Fields(config, "config.json")
    head_dim = fields.whole("head_dim", config["hidden_size"] // config["num_attention_heads"])
    return rope_config(fields, rope_parameters(fields, "full_attention"), head_dim)


@pytest.mark.parametrize("name", SETTINGS)
def test_frequencies_equal_transformers(name: str) -> None:
    expected = SETTINGS[name]
    rope = rope_table("rope", config_of(expected["config"]))
    # transformers computes in float32
    np.testing.assert_allclose(rope.inv_freq, expected["inv_freq"], rtol=2e-6)
    assert rope.attention_factor == pytest.approx(expected["attention_factor"], rel=1e-12)
    assert rope.style is RopeStyle.HALF


def test_frequency_factors_divide() -> None:
    scaling = FrequencyFactors((1.0, 2.0, 4.0))
    rope = rope_table("rope", RopeConfig(1000.0, 6, RopeStyle.INTERLEAVED, scaling))
    np.testing.assert_allclose(rope.inv_freq, [1.0, 0.05, 0.0025])


def test_yarn_stretches_the_context_and_others_do_not() -> None:
    assert stretched_context(YarnScaling(4.0, 32768, 1.0), 32768) == 131072
    assert stretched_context(YarnScaling(4.0, 32768, 1.0), 200_000) == 200_000
    assert stretched_context(FrequencyFactors((1.0,)), 4096) == 4096


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "rope_type 'dynamic'; default, linear, llama3"),
        ({"rope_type": "longrope", "short_factor": [1.0]}, "rope_type 'longrope'"),
        ({"rope_type": "default", "mrope_section": [8, 8]}, "not supported: mrope_section"),
        ({"rope_type": "linear"}, "has no factor"),
        ({"rope_type": "linear", "factor": 0}, "must be a number above 0"),
        ({"rope_type": "linear", "factor": "2"}, "must be a finite number"),
        ({"rope_type": "llama3", "factor": 8.0}, "has no low_freq_factor"),
        ({"rope_type": 3}, "must be a string"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5; 1 is supported"),
        ([1], "must be an object"),
    ],
)
def test_rotary_settings_that_are_not_supported_raise(settings: object, message: str) -> None:
    config = {"hidden_size": 64, "num_attention_heads": 2, "max_position_embeddings": 99}
    with pytest.raises((ModelFileError, UnsupportedError), match=message):
        config_of({**config, "rope_parameters": settings})
