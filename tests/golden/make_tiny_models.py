"""Writes the expected logits of tiny random models, computed by the transformers library.

    python tests/golden/make_tiny_models.py

needs torch and transformers (made with torch 2.13.0 and transformers 5.24.0). The weights are not
stored: `random_weight` makes them from a tensor's name, here and in tests/models. Writes
data/tiny_models.json (configurations and prompts) and data/tiny_logits.npz.
"""

from __future__ import annotations

import copy
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"
VOCAB = 61
PROMPT_LENGTH = 24

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
ROPE = {"rope_theta": 500.0}
LINEAR = {"rope_type": "linear", "factor": 3.0, **ROPE}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 48,
    **ROPE,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 8.0,
    "beta_slow": 1.0,
    **ROPE,
}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 2000.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}
GEMMA = {
    "num_hidden_layers": 4,
    "num_key_value_heads": 1,
    "head_dim": 12,
    "sliding_window": 5,
    "sliding_window_pattern": 3,
    "query_pre_attn_scalar": 20,
    "rope_parameters": GEMMA_ROPE,
}
# case -> (model type, settings)
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope_parameters": {"rope_type": "default", **ROPE}}),
    "llama_tied_with_biases": (
        "llama",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True},
    ),
    "llama_linear": ("llama", {"rope_parameters": LINEAR}),
    "llama_llama3": ("llama", {"rope_parameters": LLAMA3, "head_dim": 16}),
    "llama_yarn": ("llama", {"rope_parameters": YARN, "head_dim": 16}),
    "mistral_window": ("mistral", {"sliding_window": 5, "head_dim": 6}),
    "mistral_without_window": ("mistral", {"sliding_window": None}),
    "qwen2_tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2_late_window": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "qwen2_yarn": ("qwen2", {"rope_parameters": {**YARN, "attention_factor": 0.9}}),
    "qwen3": ("qwen3", {"head_dim": 10, "tie_word_embeddings": True}),
    "qwen3_with_biases": ("qwen3", {"head_dim": 8, "attention_bias": True}),
    "gemma3": ("gemma3_text", GEMMA),
    "gemma3_capped": (
        "gemma3_text",
        {
            **GEMMA,
            "query_pre_attn_scalar": 12,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 4.0,
        },
    ),
}


def random_weight(name: str, shape: tuple[int, ...], is_gemma: bool) -> np.ndarray:
    """The weight of a tensor: a function of its name and shape alone (RandomState is frozen)."""
    values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if "norm" in name:
        values = 0.2 * values + (0.0 if is_gemma else 1.0)
    elif len(shape) == 2 and "embed" not in name:
        values = values * (1.5 / np.sqrt(shape[1]))
    elif is_gemma:
        values = values / np.sqrt(shape[-1])
    return values.astype(np.float32)


def prompt(case: str) -> list[int]:
    """Random token ids."""
    random = np.random.RandomState(zlib.crc32(case.encode()))
    return [int(token) for token in random.randint(0, VOCAB, PROMPT_LENGTH)]


def main() -> None:
    """Runs every case and writes the two files."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    configs: dict[str, Any] = {}
    logits: dict[str, Any] = {}
    for case, (model_type, settings) in CASES.items():
        config = AutoConfig.for_model(model_type, **copy.deepcopy({**SIZES, **settings}))
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                is_gemma = model_type == "gemma3_text"
                weight = random_weight(name, tuple(parameter.shape), is_gemma)
                parameter.copy_(torch.from_numpy(weight))
            # transformers' Gemma 3 does not hand its cap to the attention by itself
            cap = settings.get("attn_logit_softcapping")
            extra = {} if cap is None else {"softcap": cap}
            output = model(torch.tensor([prompt(case)]), **extra).logits[0]
        logits[case] = output.numpy()
        configs[case] = {"prompt": prompt(case), "config": json.loads(config.to_json_string())}
        print(case, float(np.abs(logits[case]).mean()), float(np.abs(logits[case]).max()))
    DATA.mkdir(exist_ok=True)
    (DATA / "tiny_models.json").write_text(json.dumps(configs, indent=1, sort_keys=True) + "\n")
    np.savez_compressed(DATA / "tiny_logits.npz", **logits)


if __name__ == "__main__":
    main()
