"""The rotary settings of a Hugging Face config.json, in its old and its new form.

Old: `rope_theta` and `rope_scaling` at the top. New: all in `rope_parameters`, which may hold one
object for each kind of layer.
"""

from __future__ import annotations

from espalier.errors import UnsupportedError
from espalier.exec.plan import RopeStyle
from espalier.models.fields import Fields
from espalier.models.rope import (
    LinearScaling,
    Llama3Scaling,
    NoScaling,
    RopeConfig,
    RopeScaling,
    YarnScaling,
    yarn_attention_factor,
)

DEFAULT_THETA = 10_000.0


def rope_parameters(fields: Fields, layer_type: str) -> Fields | None:
    """The object that describes the layers of a type, where there is one."""
    rope = fields.part("rope_scaling" if fields.raw("rope_scaling") else "rope_parameters")
    return None if rope is None else rope.part(layer_type) or rope


def rope_config(
    fields: Fields, rope: Fields | None, head_dim: int, default_theta: float = DEFAULT_THETA
) -> RopeConfig:
    """The rotation that the top of config.json and its rotary object describe together.

    Raises UnsupportedError for a kind of scaling, or a setting of it, that is not supported.
    """
    theta = fields.positive("rope_theta", default_theta)
    rotated = fields.number("partial_rotary_factor", 1.0)
    scaling: RopeScaling = NoScaling()
    if rope is not None:
        theta = rope.positive("rope_theta", theta)
        rotated = rope.number("partial_rotary_factor", rotated)
        scaling = _scaling(rope, fields)
        rope.refuse_unread()
    if rotated != 1:
        raise UnsupportedError(
            f"{fields.where} has partial_rotary_factor {rotated}; 1 is supported."
        )
    return RopeConfig(theta, head_dim, RopeStyle.HALF, scaling)


def _scaling(rope: Fields, fields: Fields) -> RopeScaling:
    kind = rope.text("rope_type", rope.text("type", "default"))
    for key in ("type", "original_max_position_embeddings"):  # not every kind uses them
        rope.raw(key)
    if kind == "default":
        return NoScaling()
    if kind == "linear":
        return LinearScaling(rope.positive("factor"))
    if kind == "llama3":
        return Llama3Scaling(
            factor=rope.positive("factor"),
            low_freq_factor=rope.positive("low_freq_factor"),
            high_freq_factor=rope.positive("high_freq_factor"),
            original_context=_original_context(rope, fields),
        )
    if kind == "yarn":
        return _yarn(rope, fields)
    raise UnsupportedError(
        f"{rope.where} has rope_type {kind!r}; default, linear, llama3 and yarn are supported."
    )


def _original_context(rope: Fields, fields: Fields) -> int:
    """Positions that the model was first trained on; the value at the top comes first."""
    inner = rope.whole("original_max_position_embeddings", fields.whole("max_position_embeddings"))
    return max(1, fields.whole("original_max_position_embeddings", inner))


def _yarn(rope: Fields, fields: Fields) -> YarnScaling:
    original = _original_context(rope, fields)
    factor = rope.positive("factor", fields.whole("max_position_embeddings") / original)
    mscale = rope.number("mscale", 0.0)
    mscale_all = rope.number("mscale_all_dim", 0.0)
    attention_factor = yarn_attention_factor(factor)
    if mscale and mscale_all:
        attention_factor = yarn_attention_factor(factor, mscale) / yarn_attention_factor(
            factor, mscale_all
        )
    return YarnScaling(
        factor=factor,
        original_context=original,
        attention_factor=rope.positive("attention_factor", attention_factor),
        beta_fast=rope.positive("beta_fast", 32.0),
        beta_slow=rope.positive("beta_slow", 1.0),
        truncate=rope.flag("truncate", True),
    )
