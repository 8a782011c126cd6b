"""From a ModelConfig back to a Hugging Face config.json, and which tensors go where.

Knows the field names of the transformers library and GGUF's order of rotated rows. It touches no
file and no weight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from espalier.errors import UnsupportedError
from espalier.exec.plan import Activation, RopeStyle, WeightSlot
from espalier.models.architecture import Architecture
from espalier.models.config import FileFormat, ModelConfig
from espalier.models.rope import LinearScaling, NoScaling, RopeConfig

_ROTATED = ("q", "k", "q_bias", "k_bias")


@dataclass(frozen=True, slots=True)
class ExportedTensor:
    """One tensor of the folder, made of one tensor of the GGUF file.

    Attributes:
        name, source: its name in the folder and in the file.
        shape: the same in both, fastest dimension last.
        offset: added to every element on the way.
        rows_per_head: rows of a head whose order changes, see `half_order`; 0 where none does.
    """

    name: str
    source: str
    shape: tuple[int, ...]
    offset: float
    rows_per_head: int


def exported_config(architecture: Architecture, config: ModelConfig) -> dict[str, Any]:
    """The fields of config.json that describe the computation.

    Raises UnsupportedError for an architecture or a feature that cannot be written.
    """
    writer = _WRITERS.get(architecture.name)
    if writer is None:
        raise UnsupportedError(
            f"{config.name} is of the architecture {architecture.name!r}, which cannot be exported "
            f"yet; supported are {', '.join(sorted(_WRITERS))}."
        )
    return {**_common(config), **writer(config)}


def exported_tensors(architecture: Architecture, config: ModelConfig) -> list[ExportedTensor]:
    """The tensors of the folder, in the order in which the model uses them."""
    is_gemma = architecture.name == "gemma3"
    config = replace(config, file_format=FileFormat.GGUF)
    as_hf = replace(config, file_format=FileFormat.HF, norm_offset=1.0 if is_gemma else 0.0)
    sources = architecture.build(config, architecture.gguf_names).weights
    targets = architecture.build(as_hf, architecture.hf_names).weights
    return [
        ExportedTensor(
            name=target.tensor,
            source=source.tensor,
            shape=source.shape,
            offset=source.offset - target.offset,
            rows_per_head=_rows_per_head(source, config),
        )
        for source, target in zip(sources, targets, strict=True)
    ]


def _rows_per_head(slot: WeightSlot, config: ModelConfig) -> int:
    is_rotated = slot.name.rsplit(".", 1)[-1] in _ROTATED
    return config.head_dim if is_rotated and config.rope.style is RopeStyle.INTERLEAVED else 0


def half_order(rows_per_head: int) -> list[int]:
    """Where the rows of a head come from: elements 2i and 2i + 1 go to i and half + i.

    GGUF files of the Llama family hold neighbours that rotate together; transformers rotates the
    first half of a head with the second.
    """
    return [*range(0, rows_per_head, 2), *range(1, rows_per_head, 2)]


def _common(config: ModelConfig) -> dict[str, Any]:
    _check_rotation(config, config.rope)
    if config.local_rope is not None:
        _check_rotation(config, config.local_rope)
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.mlp_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_context,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_embeddings,
        "use_cache": True,
    }


def _check_rotation(config: ModelConfig, rope: RopeConfig) -> None:
    if rope.rotary_dim != config.head_dim:
        raise UnsupportedError(
            f"{config.name} rotates {rope.rotary_dim} of {config.head_dim} elements of a head; a "
            "model that rotates all of them can be exported."
        )
    if not isinstance(rope.scaling, NoScaling | LinearScaling):
        raise UnsupportedError(
            f"{config.name} scales its rotation by {type(rope.scaling).__name__}; a model with "
            "none or linear scaling can be exported."
        )


def _rope_parameters(rope: RopeConfig) -> dict[str, Any]:
    if isinstance(rope.scaling, LinearScaling):
        return {"rope_type": "linear", "factor": rope.scaling.factor, "rope_theta": rope.theta}
    return {"rope_type": "default", "rope_theta": rope.theta}


def _llama(config: ModelConfig) -> dict[str, Any]:
    if any(config.layer_windows):
        raise UnsupportedError(
            f"{config.name} has an attention window of {max(config.layer_windows)} positions; a "
            "Llama without one can be exported."
        )
    if config.attention_bias != config.output_bias:
        raise UnsupportedError(
            f"{config.name} has biases in some attention projections only; a Llama with all of "
            "them or none can be exported."
        )
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        "rope_theta": config.rope.theta,
    }
    if isinstance(config.rope.scaling, LinearScaling):
        fields["rope_scaling"] = _rope_parameters(config.rope)
    return fields


def _gemma3(config: ModelConfig) -> dict[str, Any]:
    assert config.local_rope is not None
    assert config.activation is Activation.GELU_TANH
    return {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": config.attention_bias,
        "query_pre_attn_scalar": _whole_if_near(config.attention_scale**-2),
        "sliding_window": max(config.layer_windows) or config.max_context,
        "layer_types": [
            "sliding_attention" if window else "full_attention" for window in config.layer_windows
        ],
        "rope_parameters": {
            "full_attention": _rope_parameters(config.rope),
            "sliding_attention": _rope_parameters(config.local_rope),
        },
        "attn_logit_softcapping": config.attention_soft_cap or None,
        "final_logit_softcapping": config.logit_soft_cap or None,
    }


def _whole_if_near(value: float) -> float | int:
    return round(value) if abs(value - round(value)) < 1e-6 * value else value


_WRITERS: Mapping[str, Callable[[ModelConfig], dict[str, Any]]] = {
    "llama": _llama,
    "gemma3": _gemma3,
}
