"""Llama 2 and 3, Mistral, SmolLM2 and all that share their shape."""

from __future__ import annotations

from dataclasses import replace

from espalier.exec.plan import Plan, RopeStyle
from espalier.models import gguf_config, hf_config
from espalier.models.architecture import GGUF_NAMES, HF_NAMES, Architecture, TensorNames
from espalier.models.config import ModelConfig
from espalier.models.fields import Fields
from espalier.models.gguf_config import GgufModel
from espalier.models.plan_builder import PlanBuilder

_MISTRAL_WINDOW = 4096  # where a Mistral folder does not say


def build(config: ModelConfig, names: TensorNames) -> Plan:
    """Attention and a gated MLP, each behind a norm and added to the residual."""
    builder = PlanBuilder(config, names)
    builder.embed()
    for layer in range(config.num_layers):
        builder.norm_before("attention_norm", layer)
        builder.project_qkv(layer)
        builder.attend(layer)
        builder.add_to_residual()
        builder.norm_before("mlp_norm", layer)
        builder.gated_mlp(layer)
        builder.add_to_residual()
    return builder.finish()


def read_gguf(model: GgufModel) -> ModelConfig:
    """The rows of q and k are stored so that neighbouring elements rotate together."""
    config = gguf_config.common_config(model, RopeStyle.INTERLEAVED)
    window = model.fields.whole("attention.sliding_window", 0)
    return replace(config, layer_windows=(window,) * config.num_layers)


def read_hf(name: str, fields: Fields) -> ModelConfig:
    """`model_type` llama has optional biases, mistral an optional window in all layers."""
    config = hf_config.common_config(name, fields)
    if fields.text("model_type") == "mistral":
        # An explicit null switches the window off; only an absent field means the default.
        default = 0 if fields.is_null("sliding_window") else _MISTRAL_WINDOW
        window = fields.whole("sliding_window", default)
        return replace(config, layer_windows=(window,) * config.num_layers)
    bias = fields.flag("attention_bias", False)
    return replace(
        config,
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=fields.flag("mlp_bias", False),
    )


ARCHITECTURE = Architecture(
    name="llama",
    hf_types=("llama", "mistral"),
    read_gguf=read_gguf,
    read_hf=read_hf,
    build=build,
    gguf_names=GGUF_NAMES,
    hf_names=HF_NAMES,
)
