"""Qwen 2 and 2.5: the Llama shape with biases on q, k and v."""

from __future__ import annotations

from dataclasses import replace

from espalier.exec.plan import RopeStyle
from espalier.models import gguf_config, hf_config, llama
from espalier.models.architecture import GGUF_NAMES, HF_NAMES, Architecture
from espalier.models.config import ModelConfig
from espalier.models.fields import Fields
from espalier.models.gguf_config import GgufModel


def read_gguf(model: GgufModel) -> ModelConfig:
    """Biases on q, k and v are part of the architecture."""
    config = gguf_config.common_config(model, RopeStyle.HALF)
    return replace(config, attention_bias=True)


def read_hf(name: str, fields: Fields) -> ModelConfig:
    """Layers from `max_window_layers` on may have a window."""
    config = hf_config.common_config(name, fields)
    return replace(
        config,
        attention_bias=True,
        layer_windows=hf_config.late_layer_windows(fields, config.num_layers),
    )


ARCHITECTURE = Architecture(
    name="qwen2",
    hf_types=("qwen2",),
    read_gguf=read_gguf,
    read_hf=read_hf,
    build=llama.build,
    gguf_names=GGUF_NAMES,
    hf_names=HF_NAMES,
)
