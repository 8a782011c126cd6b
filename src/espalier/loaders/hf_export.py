"""Writes a GGUF model as a Hugging Face folder, for programs that read no GGUF.

Knows the files of a folder and how a whole one appears at once. What they hold is decided in
models/hf_export.py and tokenizer/hf_export.py.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier import _native
from espalier.errors import ModelFileError, UserInputError
from espalier.exec.executor import RawTensor
from espalier.loaders.gguf import GgufFile
from espalier.loaders.model import frequency_factors
from espalier.loaders.safetensors_writer import ELEMENT_TYPES, write_safetensors
from espalier.models.architectures import config_from_gguf, plan_from_gguf
from espalier.models.hf_export import (
    ExportedTensor,
    exported_config,
    exported_tensors,
    half_order,
)
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.hf_export import exported_tokenizer, exported_tokenizer_config

FORMATS = ("hf",)
_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_BLOCK_ELEMENTS = 4 << 20  # unpacked at a time


def export_hf_folder(
    source: Path, output: Path, *, dtype: str = "bfloat16", overwrites: bool = False
) -> Path:
    """Writes config.json, weights, tokenizer and generation_config.json; returns `output`.

    `dtype` is the element type of the weights, "bfloat16" or "float32". A folder with files in it
    is refused unless `overwrites`, which replaces files of the same names and leaves others. What
    was half written is removed where anything fails.
    Raises UserInputError for `output` or `dtype`, UnsupportedError for a model that cannot be
    exported, ModelFileError for a broken one or where the disk is full.
    """
    if dtype not in ELEMENT_TYPES:
        raise UserInputError(f"dtype is {dtype!r}; allowed are {', '.join(sorted(ELEMENT_TYPES))}.")
    if source.is_dir():
        raise UserInputError(f"{source} is a Hugging Face folder already; give a GGUF file.")
    _check_output(output, overwrites)
    file = GgufFile(source)
    factors = frequency_factors(file)
    plan_from_gguf(source.stem, file.metadata, file.tensor_shapes, factors)  # checks the tensors
    architecture, config = config_from_gguf(source.stem, file.metadata, file.tensor_shapes, factors)
    template = file.metadata.get("tokenizer.chat_template")
    objects = {
        "config.json": {
            **exported_config(architecture, config),
            **_end_tokens(file.metadata),
            "torch_dtype": dtype,
        },
        "generation_config.json": _end_tokens(file.metadata),
        "tokenizer.json": exported_tokenizer(file.metadata),
        "tokenizer_config.json": exported_tokenizer_config(
            file.metadata, config.max_context, template if isinstance(template, str) else None
        ),
    }
    tensors = exported_tensors(architecture, config)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        scratch = output.parent / f".{output.name}.{uuid.uuid4().hex}"
        scratch.mkdir()
        try:
            _write_folder(scratch, objects, file, tensors, dtype)
            _publish(scratch, output)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise ModelFileError(f"{output} cannot be written: {error.strerror}.") from error
    return output


def _check_output(output: Path, overwrites: bool) -> None:
    if not output.exists():
        return
    if not output.is_dir():
        raise UserInputError(f"{output} is a file; give the folder to write.")
    if any(output.iterdir()) and not overwrites:
        raise UserInputError(
            f"{output} is not empty; give another folder, or ask for its files to be overwritten "
            "(--overwrite)."
        )
    others = [path for path in output.glob("*.safetensors") if path.name != _WEIGHTS]
    if (output / _INDEX).exists() or others:
        raise UserInputError(
            f"{output} holds weights in other files than {_WEIGHTS}, which would be mixed up with "
            "the new ones; give another folder."
        )


def _end_tokens(metadata: Mapping[str, object]) -> dict[str, Any]:
    """Ids of the tokens that begin, end and pad a text."""
    vocabulary = tokenizer_from_gguf(metadata).vocabulary
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


def _publish(scratch: Path, output: Path) -> None:
    if not output.exists():
        scratch.rename(output)
        return
    for path in sorted(scratch.iterdir()):
        path.replace(output / path.name)
