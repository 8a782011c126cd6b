"""From a Hugging Face config.json to a ModelConfig: what all architectures share.

Knows the field names of the transformers library; an architecture's file adds its own. Which
fields of a `model_type` count is settled by that library: others change nothing there either.
"""

from __future__ import annotations

from espalier.errors import UnsupportedError
from espalier.exec.plan import Activation
from espalier.models.config import MAX_LAYERS, FileFormat, ModelConfig
from espalier.models.fields import Fields
from espalier.models.hf_rope import DEFAULT_THETA, rope_config, rope_parameters
from espalier.models.rope import stretched_context

_ACTIVATIONS = {
    "silu": Activation.SILU,
    "swish": Activation.SILU,
    "gelu_pytorch_tanh": Activation.GELU_TANH,
    "gelu_tanh": Activation.GELU_TANH,
}
_QWEN_WINDOW, _QWEN_FIRST_WINDOW = 4096, 28  # where a folder does not say
_FULL, _SLIDING = "full_attention", "sliding_attention"


def common_config(
    name: str,
    fields: Fields,
    *,
    head_dim: int | None = None,
    tied_embeddings: bool = False,
    theta: float = DEFAULT_THETA,
) -> ModelConfig:
    """The configuration that the shared fields describe, with full attention throughout.

    `head_dim`, `tied_embeddings` and `theta` are what the model type takes where the file does
    not say.
    Raises ModelFileError for a field that is missing or of the wrong kind, UnsupportedError for a
    feature that is not supported.
    """
    refuse_foreign(fields)
    num_layers = fields.whole("num_hidden_layers")
    hidden_size = fields.whole("hidden_size")
    num_heads = fields.whole("num_attention_heads")
    if head_dim is None:
        head_dim = hidden_size // max(1, num_heads)
    head_dim = fields.whole("head_dim", head_dim)
    rope = rope_config(fields, rope_parameters(fields, _FULL), head_dim, theta)
    return ModelConfig(
        name=name,
        file_format=FileFormat.HF,
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_heads=num_heads,
        num_kv_heads=fields.whole("num_key_value_heads", num_heads),
        head_dim=head_dim,
        mlp_size=fields.whole("intermediate_size"),
        vocab_size=fields.whole("vocab_size"),
        max_context=stretched_context(rope.scaling, fields.whole("max_position_embeddings")),
        norm_eps=fields.positive("rms_norm_eps", 1e-6),
        rope=rope,
        layer_windows=(0,) * min(num_layers, MAX_LAYERS),
        attention_scale=max(1, head_dim) ** -0.5,
        activation=activation(fields, "hidden_act", "silu"),
        tied_embeddings=fields.flag("tie_word_embeddings", tied_embeddings),
    )


def activation(fields: Fields, key: str, default: str) -> Activation:
    """The activation of the gated MLP."""
    name = fields.text(key, default)
    if name not in _ACTIVATIONS:
        raise UnsupportedError(
            f"{fields.where} has {key} {name!r}; {', '.join(_ACTIVATIONS)} are supported."
        )
    return _ACTIVATIONS[name]


def layer_windows(
    fields: Fields, num_layers: int, window: int, default: tuple[bool, ...]
) -> tuple[int, ...]:
    """The window of each layer: `window` for the layers of `layer_types` that slide.

    `default` says which layers slide where the file has no `layer_types`.
    """
    kinds = fields.raw("layer_types")
    if kinds is None:
        return tuple(window if slides else 0 for slides in default)
    if not isinstance(kinds, list) or len(kinds) != num_layers:
        raise UnsupportedError(
            f"{fields.where} has layer_types that are not a list of {num_layers} names."
        )
    unknown = sorted({str(kind) for kind in kinds} - {_FULL, _SLIDING})
    if unknown:
        raise UnsupportedError(
            f"{fields.where} has layers of the types {', '.join(unknown)}; {_FULL} and {_SLIDING} "
            "are supported."
        )
    return tuple(window if kind == _SLIDING else 0 for kind in kinds)


def late_layer_windows(fields: Fields, num_layers: int) -> tuple[int, ...]:
    """The windows of Qwen models: none, or one in the layers from `max_window_layers` on."""
    window = 0
    if fields.flag("use_sliding_window", False) and not fields.is_null("sliding_window"):
        window = fields.whole("sliding_window", _QWEN_WINDOW)
    first = fields.whole("max_window_layers", _QWEN_FIRST_WINDOW)
    default = tuple(layer >= first for layer in range(num_layers))
    return layer_windows(fields, num_layers, window, default)


def refuse_foreign(fields: Fields) -> None:
    """Raises UnsupportedError for weights or code that a plain folder does not have."""
    quantization = fields.part("quantization_config")
    if quantization is not None:
        raise UnsupportedError(
            f"{fields.where} says that the weights are quantised "
            f"({quantization.raw('quant_method')!r}); F32, F16 and BF16 are supported in "
            "safetensors. Use the original model, or a GGUF file."
        )
    code = fields.part("auto_map")
    if code is not None and "AutoModelForCausalLM" in code:
        raise UnsupportedError(
            f"{fields.where} names code of its own for the model (auto_map); the code that comes "
            "with a model is never run."
        )
