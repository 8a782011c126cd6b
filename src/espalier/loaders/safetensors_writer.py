"""Writes a safetensors file tensor by tensor, so that one block of rows is in memory at a time.

Knows the container and the two element types that it writes, and nothing of what tensors are for.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from espalier.errors import UserInputError

Float32Array = NDArray[np.float32]
# Name of an element type -> (its name in the container, bytes)
_ELEMENT_TYPES: Mapping[str, tuple[str, int]] = {"bfloat16": ("BF16", 2), "float32": ("F32", 4)}
_ALIGNMENT = 8


def check_element_type(element_type: str) -> None:
    """Raises UserInputError for another element type than "bfloat16" and "float32"."""
    if element_type not in _ELEMENT_TYPES:
        raise UserInputError(
            f"dtype is {element_type!r}; allowed are {', '.join(sorted(_ELEMENT_TYPES))}."
        )


def write_safetensors(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    blocks: Iterable[Float32Array],
    element_type: str,
) -> None:
    """Writes tensors of these names and shapes; their elements come from `blocks`, in that order.

    A block may hold part of a tensor, and never parts of two. Raises as check_element_type does,
    and OSError where writing fails.
    """
    check_element_type(element_type)
    type_name, num_bytes = _ELEMENT_TYPES[element_type]
    with path.open("xb") as file:
        file.write(_header(shapes, type_name, num_bytes))
        num_written = 0
        for data in _encoded(blocks, element_type):
            num_written += file.write(data)
        total = sum(map(math.prod, shapes.values())) * num_bytes
        assert num_written == total, (num_written, total)


def _header(shapes: Mapping[str, tuple[int, ...]], type_name: str, num_bytes: int) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + math.prod(shape) * num_bytes
        entries[name] = {"dtype": type_name, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text


def _encoded(blocks: Iterable[Float32Array], element_type: str) -> Iterator[bytes]:
    for block in blocks:
        if element_type == "float32":
            yield block.astype("<f4", copy=False).tobytes()
        else:
            yield bfloat16_bits(block).astype("<u2", copy=False).tobytes()


def bfloat16_bits(values: Float32Array) -> NDArray[np.uint16]:
    """The nearest bfloat16 (ties to even) of each element; a NaN stays one."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    nearest = np.where(np.isnan(values), np.uint32(0x7FC0), rounded)
    out: NDArray[np.uint16] = nearest.astype(np.uint16)
    return out
