"""Qwen 3: the Llama shape with a norm on each head of q and k."""

from __future__ import annotations

from dataclasses import replace

from espalier.exec.plan import Plan, RopeStyle
from espalier.models import gguf_config, hf_config
from espalier.models.architecture import GGUF_NAMES, HF_NAMES, Architecture, TensorNames
from espalier.models.config import ModelConfig
from espalier.models.fields import Fields
from espalier.models.gguf_config import GgufModel
from espalier.models.plan_builder import PlanBuilder

_HEAD_DIM = 128  # where a folder does not say


def build(config: ModelConfig, names: TensorNames) -> Plan:
    """As Llama, with q and k normalised head by head before their rotation."""
    builder = PlanBuilder(config, names)
    builder.embed()
    for layer in range(config.num_layers):
        builder.norm_before("attention_norm", layer)
        builder.project_qkv(layer)
        builder.norm_heads(layer)
        builder.attend(layer)
        builder.add_to_residual()
        builder.norm_before("mlp_norm", layer)
        builder.gated_mlp(layer)
        builder.add_to_residual()
    return builder.finish()


def read_gguf(model: GgufModel) -> ModelConfig:
    """Nothing but what all architectures share."""
    return gguf_config.common_config(model, RopeStyle.HALF)


def read_hf(name: str, fields: Fields) -> ModelConfig:
    """Optional biases; layers from `max_window_layers` on may have a window."""
    config = hf_config.common_config(name, fields, head_dim=_HEAD_DIM)
    bias = fields.flag("attention_bias", False)
    return replace(
        config,
        attention_bias=bias,
        output_bias=bias,
        layer_windows=hf_config.late_layer_windows(fields, config.num_layers),
    )


ARCHITECTURE = Architecture(
    name="qwen3",
    hf_types=("qwen3",),
    read_gguf=read_gguf,
    read_hf=read_hf,
    build=build,
    gguf_names=GGUF_NAMES,
    hf_names=HF_NAMES,
)
