"""Writes rotary frequencies computed by the transformers library for settings of known models.

    python tests/golden/make_rope.py

needs torch and transformers (made with torch 2.13.0 and transformers 5.24.0). Writes
data/rope.json: settings as they stand in config.json files, and what follows from them.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
BASE = {"hidden_size": 256, "num_attention_heads": 4, "max_position_embeddings": 4096}

# Old and new form of the settings; the names say which models have such.
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"rope_theta": 100000.0},
    "new form": {"rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}},
    "linear": {"rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.5}},
    "llama 3.1": {
        "rope_theta": 500000.0,
        "max_position_embeddings": 131072,
        "head_dim": 128,
        "rope_scaling": {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "llama 3.2": {
        "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_theta": 500000.0,
            "factor": 32.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
    },
    "qwen 2.5 yarn": {
        "rope_theta": 1000000.0,
        "max_position_embeddings": 32768,
        "head_dim": 128,
        "rope_scaling": {
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
            "type": "yarn",
        },
    },
    "yarn without original": {
        "rope_parameters": {"rope_theta": 10000.0, "factor": 16.0, "rope_type": "yarn"},
    },
    "yarn with all settings": {
        "rope_parameters": {
            "rope_theta": 150000.0,
            "rope_type": "yarn",
            "factor": 32.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 16.0,
            "beta_slow": 2.0,
            "truncate": False,
            "attention_factor": 1.1,
        },
    },
    "yarn with mscale": {
        "rope_parameters": {
            "rope_theta": 10000.0,
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "mscale": 0.707,
            "mscale_all_dim": 1.0,
        },
    },
}


def main() -> None:
    """Computes every setting and writes the file."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    result = {}
    for name, settings in SETTINGS.items():
        config = LlamaConfig(**copy.deepcopy({**BASE, **settings}))
        rope = LlamaRotaryEmbedding(config)  # applies ROPE_INIT_FUNCTIONS
        result[name] = {
            "config": {**BASE, **settings},
            "inv_freq": [float(value) for value in rope.inv_freq],
            "attention_factor": rope.attention_scaling,
        }
    (DATA / "rope.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
