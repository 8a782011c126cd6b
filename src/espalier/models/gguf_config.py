"""From GGUF metadata to a ModelConfig: what all architectures share.

Knows the metadata keys of the container's convention; an architecture's file adds its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from espalier.errors import UnsupportedError
from espalier.exec.plan import RopeStyle
from espalier.models.config import MAX_LAYERS, FileFormat, ModelConfig
from espalier.models.fields import Fields
from espalier.models.rope import (
    FrequencyFactors,
    LinearScaling,
    NoScaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
    stretched_context,
    yarn_attention_factor,
)

Shapes = Mapping[str, tuple[int, ...]]

FREQUENCY_FACTORS_TENSOR = "rope_freqs.weight"
_EMBEDDING = "token_embd.weight"
_DEFAULT_THETA = 10_000.0

# Keys that say nothing about the computation.
_DESCRIPTIONS = ("vocab_size", "rope.scaling.finetuned", "tensor_data_layout")
# Keys of features that are not supported, with the value that means "off".
_SWITCHED_OFF = {
    "expert_count": 0,
    "expert_used_count": 0,
    "attention.causal": True,
    "pooling_type": 0,
    "use_parallel_residual": False,
    "rope.scaling.yarn_log_multiplier": 0.0,
}


@dataclass(frozen=True, slots=True)
class GgufModel:
    """What a GGUF file says of its model: the architecture's fields, tensor shapes and factors."""

    name: str
    fields: Fields
    shapes: Shapes
    frequency_factors: Sequence[float] | None = None


def common_config(model: GgufModel, rope_style: RopeStyle) -> ModelConfig:
    """The configuration that the architecture-independent keys describe, full attention throughout.

    Raises ModelFileError for a key that is missing or of the wrong kind, UnsupportedError for a
    feature that is not supported.
    """
    fields, shapes = model.fields, model.shapes
    num_layers = fields.whole("block_count")
    hidden_size = fields.whole("embedding_length")
    num_heads = fields.whole("attention.head_count")
    head_dim = fields.whole("attention.key_length", hidden_size // max(1, num_heads))
    if fields.whole("attention.value_length", head_dim) != head_dim:
        raise UnsupportedError(
            f"{fields.where} has attention values of another length than its keys, {head_dim}; "
            "equal lengths are supported."
        )
    rope = rope_config(model, head_dim, rope_style)
    return ModelConfig(
        name=model.name,
        file_format=FileFormat.GGUF,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=fields.whole("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        mlp_size=fields.whole("feed_forward_length"),
        vocab_size=shapes.get(_EMBEDDING, (0,))[0] or fields.whole("vocab_size"),
        max_context=stretched_context(rope.scaling, fields.whole("context_length")),
        norm_eps=fields.positive("attention.layer_norm_rms_epsilon"),
        rope=rope,
        layer_windows=(0,) * min(num_layers, MAX_LAYERS),
        attention_scale=max(1, head_dim) ** -0.5,
        tied_embeddings="output.weight" not in shapes,
        attention_bias="blk.0.attn_q.bias" in shapes,
        output_bias="blk.0.attn_output.bias" in shapes,
        mlp_bias="blk.0.ffn_gate.bias" in shapes,
    )


def rope_config(model: GgufModel, head_dim: int, style: RopeStyle) -> RopeConfig:
    """The rotation that the keys `rope.*` describe."""
    fields = model.fields
    return RopeConfig(
        theta=fields.positive("rope.freq_base", _DEFAULT_THETA),
        rotary_dim=fields.whole("rope.dimension_count", head_dim),
        style=style,
        scaling=_scaling(model),
    )


def _scaling(model: GgufModel) -> RopeScaling:
    fields = model.fields
    factor = fields.positive("rope.scaling.factor", fields.positive("rope.scale_linear", 1.0))
    kind = fields.text("rope.scaling.type", "linear" if factor != 1 else "none")
    if model.frequency_factors is not None:
        if kind != "none":
            raise UnsupportedError(
                f"{fields.where} has rope scaling {kind!r} and a tensor "
                f"{FREQUENCY_FACTORS_TENSOR!r}; one of them is supported."
            )
        return FrequencyFactors(tuple(float(value) for value in model.frequency_factors))
    if kind == "none":
        return NoScaling()
    if kind == "linear":
        return LinearScaling(factor)
    if kind == "yarn":
        return _yarn(fields, factor)
    raise UnsupportedError(
        f"{fields.where} has rope scaling {kind!r}; none, linear and yarn are supported."
    )


def _yarn(fields: Fields, factor: float) -> YarnScaling:
    # Files carry the factor on top of the paper's, 1 where nothing else was meant.
    extra = fields.positive("rope.scaling.attn_factor", 1.0)
    extra *= fields.positive("rope.scaling.yarn_attn_factor", 1.0)
    mix = fields.number("rope.scaling.yarn_ext_factor", 1.0)
    if mix != 1:
        raise UnsupportedError(
            f"{fields.where} has rope.scaling.yarn_ext_factor {mix}; 1 is supported."
        )
    return YarnScaling(
        factor=factor,
        original_context=max(
            1, fields.whole("rope.scaling.original_context_length", fields.whole("context_length"))
        ),
        attention_factor=extra * yarn_attention_factor(factor),
        beta_fast=fields.positive("rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=fields.positive("rope.scaling.yarn_beta_slow", 1.0),
    )


def refuse_unknown(fields: Fields) -> None:
    """Raises UnsupportedError where a key was neither read nor is known to change nothing."""
    for key in _DESCRIPTIONS:
        fields.raw(key)
    for key, off in _SWITCHED_OFF.items():
        if key in fields.unread() and fields.unread()[key] == off:
            fields.raw(key)
    fields.refuse_unread()
