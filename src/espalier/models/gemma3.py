"""Gemma 3, text only: norms before and after each block, and mostly local attention."""

from __future__ import annotations

from dataclasses import replace

from espalier.errors import UnsupportedError
from espalier.exec.plan import Activation, Plan, RopeStyle
from espalier.models import gguf_config, hf_config
from espalier.models.architecture import GGUF_NAMES, HF_NAMES, Architecture, TensorNames
from espalier.models.config import ModelConfig
from espalier.models.fields import Fields
from espalier.models.gguf_config import GgufModel
from espalier.models.hf_rope import rope_config
from espalier.models.plan_builder import PlanBuilder
from espalier.models.rope import RopeConfig

# What the model takes where its file does not say.
_HEAD_DIM = 256
_PATTERN = 6  # every sixth layer sees all positions, the others a window
_WINDOW = 4096
_QUERY_SCALAR = 256.0
_GLOBAL_THETA, _LOCAL_THETA = 1_000_000.0, 10_000.0
# The 27B model alone scales by hidden_size / num_heads; its GGUF files do not say so.
_LAYERS_OF_27B = 62


def build(config: ModelConfig, names: TensorNames) -> Plan:
    """Attention and a gated MLP, each between two norms, added to a scaled embedding."""
    builder = PlanBuilder(config, names)
    builder.embed()
    for layer in range(config.num_layers):
        builder.norm_before("attention_norm", layer)
        builder.project_qkv(layer)
        builder.norm_heads(layer)
        builder.attend(layer)
        builder.norm_after("attention_post_norm", layer)
        builder.add_to_residual()
        builder.norm_before("mlp_norm", layer)
        builder.gated_mlp(layer)
        builder.norm_after("mlp_post_norm", layer)
        builder.add_to_residual()
    return builder.finish()


def read_gguf(model: GgufModel) -> ModelConfig:
    """Norms are stored with 1 added; the rotation of local layers is not scaled."""
    fields = model.fields
    config = gguf_config.common_config(model, RopeStyle.HALF)
    local_theta = fields.positive("rope.freq_base_swa", _LOCAL_THETA)
    query_scalar = float(config.head_dim)
    if config.num_layers == _LAYERS_OF_27B:
        query_scalar = config.hidden_size / config.num_heads
    return replace(
        config,
        activation=Activation.GELU_TANH,
        embedding_scale=config.hidden_size**0.5,
        attention_scale=query_scalar**-0.5,
        layer_windows=_windows(fields, config.num_layers),
        local_rope=RopeConfig(local_theta, config.rope.rotary_dim, config.rope.style),
        attention_soft_cap=fields.number("attn_logit_softcapping", 0.0),
        logit_soft_cap=fields.number("final_logit_softcapping", 0.0),
    )


def _windows(fields: Fields, num_layers: int) -> tuple[int, ...]:
    window = fields.whole("attention.sliding_window")
    pattern = fields.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list):
        if len(pattern) != num_layers or not all(isinstance(slides, bool) for slides in pattern):
            raise UnsupportedError(
                f"{fields.where} has a sliding_window_pattern that is not a list of {num_layers} "
                "flags."
            )
        return tuple(window if slides else 0 for slides in pattern)
    period = fields.whole("attention.sliding_window_pattern", _PATTERN)
    return tuple(window if slides else 0 for slides in _sliding_layers(num_layers, period))


def _sliding_layers(num_layers: int, period: int) -> tuple[bool, ...]:
    return tuple(period == 0 or (layer + 1) % period != 0 for layer in range(num_layers))


def read_hf(name: str, fields: Fields) -> ModelConfig:
    """Norms are stored as the difference from 1."""
    if fields.flag("use_bidirectional_attention", False):
        raise UnsupportedError(
            f"{fields.where} asks for attention in both directions; causal attention is supported."
        )
    config = hf_config.common_config(
        name, fields, head_dim=_HEAD_DIM, tied_embeddings=True, theta=_GLOBAL_THETA
    )
    period = fields.whole("sliding_window_pattern", _PATTERN)
    bias = fields.flag("attention_bias", False)
    return replace(
        config,
        activation=hf_config.activation(fields, "hidden_activation", "gelu_pytorch_tanh"),
        norm_offset=1.0,
        embedding_scale=config.hidden_size**0.5,
        attention_scale=fields.positive("query_pre_attn_scalar", _QUERY_SCALAR) ** -0.5,
        layer_windows=hf_config.layer_windows(
            fields,
            config.num_layers,
            fields.whole("sliding_window", _WINDOW),
            _sliding_layers(config.num_layers, period),
        ),
        local_rope=_local_rope(fields, config.head_dim),
        attention_soft_cap=fields.number("attn_logit_softcapping", 0.0),
        logit_soft_cap=fields.number("final_logit_softcapping", 0.0),
        attention_bias=bias,
        output_bias=bias,
    )


def _local_rope(fields: Fields, head_dim: int) -> RopeConfig:
    parameters = fields.part("rope_parameters")
    local = None if parameters is None else parameters.part("sliding_attention")
    if local is not None:
        return rope_config(fields, local, head_dim, _LOCAL_THETA)
    # The old form scales the global layers alone.
    return RopeConfig(
        fields.positive("rope_local_base_freq", _LOCAL_THETA), head_dim, RopeStyle.HALF
    )


_GGUF_POST_NORMS = {
    "attention_post_norm": "blk.{layer}.post_attention_norm.weight",
    "mlp_post_norm": "blk.{layer}.post_ffw_norm.weight",
}
_HF_NORMS = {
    "attention_post_norm": "model.layers.{layer}.post_attention_layernorm.weight",
    "mlp_norm": "model.layers.{layer}.pre_feedforward_layernorm.weight",
    "mlp_post_norm": "model.layers.{layer}.post_feedforward_layernorm.weight",
}
ARCHITECTURE = Architecture(
    name="gemma3",
    hf_types=("gemma3_text",),
    read_gguf=read_gguf,
    read_hf=read_hf,
    build=build,
    gguf_names={**GGUF_NAMES, **_GGUF_POST_NORMS},
    hf_names={**HF_NAMES, **_HF_NORMS},
)
