"""A Hugging Face folder with a tiny random Llama and a byte-level tokenizer, made on the spot."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HIDDEN, MLP, LAYERS, HEADS, KV_HEADS = 64, 128, 2, 4, 2
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>"]
VOCAB = 256 + len(SPECIAL)
MAX_CONTEXT = 512
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": MLP,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": MAX_CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "eos_token_id": 256,
}


def write_tiny_folder(path: Path, *, chat_template: bool = True, seed: int = 0) -> Path:
    """Writes the folder and returns its path."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(CONFIG))
    _write_tokenizer(path, CHAT_TEMPLATE if chat_template else None)
    _write_weights(path / "model.safetensors", seed)
    return path


def _write_tokenizer(path: Path, chat_template: str | None) -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({text: index for index, text in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.save(str(path / "tokenizer.json"))
    config = {"eos_token": "<|end|>"}
    if chat_template is not None:
        config["chat_template"] = chat_template
    (path / "tokenizer_config.json").write_text(json.dumps(config))


def _write_weights(path: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    kv = HIDDEN // HEADS * KV_HEADS
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        shapes |= {
            f"{prefix}input_layernorm.weight": (HIDDEN,),
            f"{prefix}post_attention_layernorm.weight": (HIDDEN,),
            f"{prefix}self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            f"{prefix}self_attn.k_proj.weight": (kv, HIDDEN),
            f"{prefix}self_attn.v_proj.weight": (kv, HIDDEN),
            f"{prefix}self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            f"{prefix}mlp.gate_proj.weight": (MLP, HIDDEN),
            f"{prefix}mlp.up_proj.weight": (MLP, HIDDEN),
            f"{prefix}mlp.down_proj.weight": (HIDDEN, MLP),
        }
    header: dict[str, object] = {}
    data = b""
    for name, shape in shapes.items():
        values = random.standard_normal(shape, dtype=np.float32) * np.float32(0.15)
        if len(shape) == 1:
            values += np.float32(1.0)
        end = len(data) + values.nbytes
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), end]}
        data += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
