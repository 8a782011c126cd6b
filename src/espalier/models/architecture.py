"""What makes an architecture: how its configuration is read and how its Plan is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from espalier.exec.plan import Plan
from espalier.models.config import ModelConfig
from espalier.models.fields import Fields
from espalier.models.gguf_config import GgufModel

# Weight -> name of its tensor; `{layer}` stands for the number of the layer.
TensorNames = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family of models that one Plan fits.

    Attributes:
        name: its name in GGUF files (`general.architecture`).
        hf_types: its names in Hugging Face folders (`model_type`).
        read_gguf: reads the configuration of a GGUF file.
        read_hf: reads config.json; the first argument is the model's name.
        build: writes the Plan with the given names of tensors.
        gguf_names, hf_names: names of the tensors in both kinds of file.
    """

    name: str
    hf_types: tuple[str, ...]
    read_gguf: Callable[[GgufModel], ModelConfig]
    read_hf: Callable[[str, Fields], ModelConfig]
    build: Callable[[ModelConfig, TensorNames], Plan]
    gguf_names: TensorNames
    hf_names: TensorNames


# Names that the Llama family shares; a matrix `<name>` has its bias at `<name>_bias`.
GGUF_NAMES: TensorNames = {
    "embedding": "token_embd.weight",
    "attention_norm": "blk.{layer}.attn_norm.weight",
    "q": "blk.{layer}.attn_q.weight",
    "k": "blk.{layer}.attn_k.weight",
    "v": "blk.{layer}.attn_v.weight",
    "q_bias": "blk.{layer}.attn_q.bias",
    "k_bias": "blk.{layer}.attn_k.bias",
    "v_bias": "blk.{layer}.attn_v.bias",
    "q_norm": "blk.{layer}.attn_q_norm.weight",
    "k_norm": "blk.{layer}.attn_k_norm.weight",
    "output": "blk.{layer}.attn_output.weight",
    "output_bias": "blk.{layer}.attn_output.bias",
    "mlp_norm": "blk.{layer}.ffn_norm.weight",
    "gate": "blk.{layer}.ffn_gate.weight",
    "up": "blk.{layer}.ffn_up.weight",
    "down": "blk.{layer}.ffn_down.weight",
    "gate_bias": "blk.{layer}.ffn_gate.bias",
    "up_bias": "blk.{layer}.ffn_up.bias",
    "down_bias": "blk.{layer}.ffn_down.bias",
    "final_norm": "output_norm.weight",
    "lm_head": "output.weight",
}
HF_NAMES: TensorNames = {
    "embedding": "model.embed_tokens.weight",
    "attention_norm": "model.layers.{layer}.input_layernorm.weight",
    "q": "model.layers.{layer}.self_attn.q_proj.weight",
    "k": "model.layers.{layer}.self_attn.k_proj.weight",
    "v": "model.layers.{layer}.self_attn.v_proj.weight",
    "q_bias": "model.layers.{layer}.self_attn.q_proj.bias",
    "k_bias": "model.layers.{layer}.self_attn.k_proj.bias",
    "v_bias": "model.layers.{layer}.self_attn.v_proj.bias",
    "q_norm": "model.layers.{layer}.self_attn.q_norm.weight",
    "k_norm": "model.layers.{layer}.self_attn.k_norm.weight",
    "output": "model.layers.{layer}.self_attn.o_proj.weight",
    "output_bias": "model.layers.{layer}.self_attn.o_proj.bias",
    "mlp_norm": "model.layers.{layer}.post_attention_layernorm.weight",
    "gate": "model.layers.{layer}.mlp.gate_proj.weight",
    "up": "model.layers.{layer}.mlp.up_proj.weight",
    "down": "model.layers.{layer}.mlp.down_proj.weight",
    "gate_bias": "model.layers.{layer}.mlp.gate_proj.bias",
    "up_bias": "model.layers.{layer}.mlp.up_proj.bias",
    "down_bias": "model.layers.{layer}.mlp.down_proj.bias",
    "final_norm": "model.norm.weight",
    "lm_head": "lm_head.weight",
}
