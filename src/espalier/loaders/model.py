"""From a path to everything that an engine needs: Plan, weights, tokenizer, chat template.

Knows the two kinds of model on disk, a GGUF file and a Hugging Face folder. Weights stay in the
file's map; an executor unpacks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from espalier import _native
from espalier.errors import ModelFileError
from espalier.exec.executor import WeightSource
from espalier.exec.plan import Plan
from espalier.loaders.gguf import GgufFile
from espalier.loaders.hf_folder import HfFolder
from espalier.models.architectures import plan_from_gguf, plan_from_hf
from espalier.models.gguf_config import FREQUENCY_FACTORS_TENSOR
from espalier.tokenizer.chat_template import ChatTemplate, role_template
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.hf_folder import chat_template_from_folder, tokenizer_from_folder
from espalier.tokenizer.tokenizer import Tokenizer


class MappedWeights(WeightSource, Protocol):
    """Tensors over the maps of files."""

    def release_pages(self) -> None:
        """Gives back the memory of what was read; it is read again when asked for."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model, ready for an executor.

    Attributes:
        name: name for reports: the given one, else that of the file or folder.
        path: the file or folder.
        architecture: its name in the file ("llama", "gemma3_text", ...).
        plan: what to compute; it knows the tensors that `weights` has.
        weights: tensors over a read-only map, which lives as long as this does.
        tokenizer: text to ids and back.
        chat_template_source: the Jinja template of the file, or None.
    """

    name: str
    path: Path
    architecture: str
    plan: Plan
    weights: MappedWeights
    tokenizer: Tokenizer
    chat_template_source: str | None

    def role_template(self) -> ChatTemplate:
        """The text around the messages of a chat.

        Raises ChatTemplateError where the file has no template and its family has none that fits.
        """
        return role_template(
            self.tokenizer, source=self.chat_template_source, family=self.architecture
        )


def load_model(path: Path, *, name: str | None = None) -> LoadedModel:
    """Opens a GGUF file or a Hugging Face folder.

    Raises ModelFileError where it is missing, broken or incomplete, and UnsupportedError where it
    has an architecture, tensor type or feature that is not supported.
    """
    if not path.exists():
        raise ModelFileError(
            f"{path} does not exist; give a GGUF file or a Hugging Face model folder."
        )
    name = name or path.stem
    return _load_folder(path, name) if path.is_dir() else _load_gguf(path, name)


def _load_gguf(path: Path, name: str) -> LoadedModel:
    file = GgufFile(path)
    plan = plan_from_gguf(name, file.metadata, file.tensor_shapes, frequency_factors(file))
    template = file.metadata.get("tokenizer.chat_template")
    return _checked(
        LoadedModel(
            name=name,
            path=path,
            architecture=str(file.metadata["general.architecture"]),
            plan=plan,
            weights=file,
            tokenizer=tokenizer_from_gguf(file.metadata),
            chat_template_source=template if isinstance(template, str) else None,
        )
    )


def frequency_factors(file: GgufFile) -> list[float] | None:
    """The factors of the rotary frequencies that a file holds, or None."""
    if FREQUENCY_FACTORS_TENSOR not in file.tensor_shapes:
        return None
    raw = file.tensor(FREQUENCY_FACTORS_TENSOR)
    if len(raw.shape) != 1 or raw.shape[0] > 1 << 12:
        raise ModelFileError(
            f"{file.path}: {FREQUENCY_FACTORS_TENSOR} has the shape {raw.shape}; one factor for "
            "each pair of rotated elements is needed."
        )
    values = _native.unpack(raw.type.value, raw.data, raw.shape[0])
    return [float(value) for value in values]


def _load_folder(path: Path, name: str) -> LoadedModel:
    folder = HfFolder(path)
    plan = plan_from_hf(name, folder.config, folder.tensor_shapes)
    return _checked(
        LoadedModel(
            name=name,
            path=path,
            architecture=str(folder.config["model_type"]),
            plan=plan,
            weights=folder,
            tokenizer=tokenizer_from_folder(path),
            chat_template_source=chat_template_from_folder(path),
        )
    )


def _checked(model: LoadedModel) -> LoadedModel:
    num_tokens, num_rows = model.tokenizer.vocab_size, model.plan.geometry.vocab_size
    if num_tokens > num_rows:
        raise ModelFileError(
            f"{model.path}: the tokenizer has {num_tokens:,} tokens, but the model has embeddings "
            f"for {num_rows:,} only."
        )
    return model
