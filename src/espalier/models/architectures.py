"""From what a model file says to a checked Plan: the registry of architectures.

Knows every architecture, and that a Plan must use all tensors of a file and find all that it needs.
It reads no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from espalier.errors import ModelFileError, UnsupportedError
from espalier.exec.plan import Plan
from espalier.models import gemma3, llama, qwen2, qwen3
from espalier.models.architecture import Architecture
from espalier.models.config import ModelConfig
from espalier.models.fields import Fields
from espalier.models.gguf_config import (
    FREQUENCY_FACTORS_TENSOR,
    GgufModel,
    Shapes,
    refuse_unknown,
)

ARCHITECTURES: tuple[Architecture, ...] = (
    llama.ARCHITECTURE,
    qwen2.ARCHITECTURE,
    qwen3.ARCHITECTURE,
    gemma3.ARCHITECTURE,
)
_GGUF = {architecture.name: architecture for architecture in ARCHITECTURES}
_HF = {kind: architecture for architecture in ARCHITECTURES for kind in architecture.hf_types}

# Tables that old files store and that follow from the configuration.
_DERIVED_TENSORS = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")
_MAX_LISTED = 4


def plan_from_gguf(
    name: str,
    metadata: Mapping[str, object],
    shapes: Shapes,
    frequency_factors: Sequence[float] | None = None,
) -> Plan:
    """The Plan of the model in a GGUF file.

    `shapes` are those of its tensors; `frequency_factors` are the values of the tensor
    `rope_freqs.weight`, where it has one. Raises UnsupportedError for an architecture, setting or
    tensor that is not supported and ModelFileError where something is missing or does not fit.
    """
    architecture, config = config_from_gguf(name, metadata, shapes, frequency_factors)
    plan = architecture.build(config, architecture.gguf_names)
    unused = set() if frequency_factors is None else {FREQUENCY_FACTORS_TENSOR}
    _check_tensors(plan, shapes, unused)
    return plan


def config_from_gguf(
    name: str,
    metadata: Mapping[str, object],
    shapes: Shapes,
    frequency_factors: Sequence[float] | None = None,
) -> tuple[Architecture, ModelConfig]:
    """The architecture and the configuration of the model in a GGUF file; see plan_from_gguf."""
    general = Fields(metadata, f"the metadata of {name}", "general.")
    kind = general.text("type", "model")
    if kind != "model":
        raise UnsupportedError(f"{name} is of the type {kind!r}; only whole models are supported.")
    family = general.text("architecture")
    if family not in _GGUF:
        raise UnsupportedError(_unknown(name, "architecture", family, _GGUF))
    architecture = _GGUF[family]
    fields = Fields(metadata, f"the metadata of {name}", f"{family}.")
    config = architecture.read_gguf(GgufModel(name, fields, shapes, frequency_factors))
    refuse_unknown(fields)
    return architecture, config


def plan_from_hf(name: str, config: Mapping[str, object], shapes: Shapes) -> Plan:
    """The Plan of the model in a Hugging Face folder: what config.json holds, and tensor shapes.

    Raises as plan_from_gguf does.
    """
    fields = Fields(config, f"config.json of {name}")
    family = fields.text("model_type")
    if family not in _HF:
        raise UnsupportedError(_unknown(name, "model_type", family, _HF))
    architecture = _HF[family]
    model = architecture.read_hf(name, fields)
    plan = architecture.build(model, architecture.hf_names)
    unused = {tensor for tensor in shapes if _DERIVED_TENSORS.fullmatch(tensor)}
    if model.tied_embeddings:
        unused.add(architecture.hf_names["lm_head"])  # a copy of the embedding
    _check_tensors(plan, shapes, unused)
    return plan


def _check_tensors(plan: Plan, shapes: Shapes, unused: set[str]) -> None:
    needed = {slot.tensor: slot.shape for slot in plan.weights}
    missing = [tensor for tensor in needed if tensor not in shapes]
    if missing:
        raise ModelFileError(
            f"{plan.name} lacks tensors that its architecture needs: {_listed(missing)}."
        )
    for tensor, shape in needed.items():
        if shapes[tensor] != shape:
            raise ModelFileError(
                f"{plan.name}: the tensor {tensor} has the shape {shapes[tensor]}, but {shape} "
                "follows from the model's configuration."
            )
    left = [tensor for tensor in shapes if tensor not in needed and tensor not in unused]
    if left:
        raise UnsupportedError(
            f"{plan.name} holds tensors that its architecture has no use for: {_listed(left)}. "
            "It has a feature that is not supported."
        )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MAX_LISTED
    return ", ".join(names[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def _unknown(name: str, key: str, found: str, known: Iterable[str]) -> str:
    return f"{name} is of the {key} {found!r}; supported are {', '.join(sorted(known))}."
