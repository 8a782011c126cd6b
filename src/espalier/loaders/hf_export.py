"""Writes a GGUF model as a Hugging Face folder, for programs that read no GGUF.

Knows the files of a folder. What they hold is decided in models/hf_export.py and
tokenizer/hf_export.py; how a folder takes its place, in output_folder.py.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier import _native
from espalier.errors import UserInputError
from espalier.exec.executor import RawTensor
from espalier.loaders.gguf import GgufFile
from espalier.loaders.model import frequency_factors
from espalier.loaders.output_folder import OutputFolder
from espalier.loaders.safetensors_writer import check_element_type, write_safetensors
from espalier.models.architectures import config_from_gguf, plan_from_gguf
from espalier.models.hf_export import (
    ExportedTensor,
    exported_config,
    exported_tensors,
    half_order,
)
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.hf_export import exported_tokenizer, exported_tokenizer_config
from espalier.tokenizer.vocabulary import Vocabulary

FORMATS = ("hf",)
_CONFIG = "config.json"
_GENERATION_CONFIG = "generation_config.json"
_TOKENIZER = "tokenizer.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_WEIGHTS = "model.safetensors"
FILE_NAMES = frozenset({_CONFIG, _GENERATION_CONFIG, _TOKENIZER, _TOKENIZER_CONFIG, _WEIGHTS})
_BLOCK_ELEMENTS = 4 << 20  # unpacked at a time


def export_hf_folder(
    source: Path, output: Path, *, dtype: str = "bfloat16", overwrites: bool = False
) -> Path:
    """Writes config.json, weights, tokenizer and generation_config.json; returns `output`.

    `dtype` is the element type of the weights, "bfloat16" or "float32". The folder appears whole,
    or everything stays as it was. One with files in it is refused, but with `overwrites` one that
    holds nothing but files called FILE_NAMES is replaced.
    Raises UserInputError for `output` or `dtype`, UnsupportedError for a model that cannot be
    exported, ModelFileError for a broken one or where the disk fails or is full.
    """
    check_element_type(dtype)
    if os.path.isdir(source):
        raise UserInputError(f"{source} is a Hugging Face folder already; give a GGUF file.")
    folder = OutputFolder(output, FILE_NAMES, overwrites)
    folder.check()
    file = GgufFile(source)
    factors = frequency_factors(file)
    plan_from_gguf(source.stem, file.metadata, file.tensor_shapes, factors)  # checks the tensors
    architecture, config = config_from_gguf(source.stem, file.metadata, file.tensor_shapes, factors)
    model_fields = {**exported_config(architecture, config), "torch_dtype": dtype}
    objects = _json_objects(file.metadata, model_fields, config.max_context)
    tensors = exported_tensors(architecture, config)
    with folder.writing() as new:
        _write_folder(new, objects, file, tensors, dtype)
    return output


def _json_objects(
    metadata: Mapping[str, object], model_fields: Mapping[str, Any], max_context: int
) -> dict[str, Mapping[str, Any]]:
    """What the files hold that are no weights, by name."""
    vocabulary = tokenizer_from_gguf(metadata).vocabulary
    ends = _end_tokens(vocabulary)
    template = metadata.get("tokenizer.chat_template")
    return {
        _CONFIG: {**model_fields, **ends},
        _GENERATION_CONFIG: ends,
        _TOKENIZER: exported_tokenizer(metadata, vocabulary),
        _TOKENIZER_CONFIG: exported_tokenizer_config(
            vocabulary, max_context, template if isinstance(template, str) else None
        ),
    }


def _end_tokens(vocabulary: Vocabulary) -> dict[str, Any]:
    """Ids of the tokens that begin, end and pad a text."""
    ends = sorted(vocabulary.eos_ids)
    ids: dict[str, Any] = {
        "bos_token_id": vocabulary.bos_id,
        "eos_token_id": ends[0] if len(ends) == 1 else ends or None,
        "pad_token_id": vocabulary.pad_id,
    }
    return {key: value for key, value in ids.items() if value is not None}


def _write_folder(
    folder: Path,
    objects: Mapping[str, Mapping[str, Any]],
    file: GgufFile,
    tensors: Iterable[ExportedTensor],
    dtype: str,
) -> None:
    for name, value in objects.items():
        text = json.dumps(value, indent=1, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    tensors = list(tensors)
    blocks = (
        block for tensor in tensors for block in tensor_blocks(file.tensor(tensor.source), tensor)
    )
    shapes = {tensor.name: tensor.shape for tensor in tensors}
    write_safetensors(folder / _WEIGHTS, shapes, blocks, dtype)


def tensor_blocks(raw: RawTensor, target: ExportedTensor) -> Iterator[NDArray[np.float32]]:
    """The elements of a tensor as the folder holds them, in blocks of whole rows."""
    num_rows = raw.shape[0]
    row_size = int(np.prod(raw.shape[1:], dtype=np.int64))
    unit = target.rows_per_head or 1
    rows_per_block = max(1, _BLOCK_ELEMENTS // (row_size * unit)) * unit
    order = half_order(target.rows_per_head) if target.rows_per_head else None
    if len(raw.shape) == 1:  # a vector is one packed row
        rows_per_block = num_rows
    for first in range(0, num_rows, rows_per_block):
        num = min(rows_per_block, num_rows - first)
        start = _native.packed_bytes(raw.type.value, first * row_size)
        stop = _native.packed_bytes(raw.type.value, (first + num) * row_size)
        block = _native.unpack(raw.type.value, raw.data[start:stop], num * row_size)
        if order is not None:
            heads = block.reshape(num // unit, unit, row_size)
            block = heads[:, order].reshape(-1)
        yield block + np.float32(target.offset) if target.offset else block
