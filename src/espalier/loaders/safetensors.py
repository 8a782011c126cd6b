"""The safetensors container: tensors over read-only maps, in one file or several shards.

Knows the container and nothing of what the tensors are for. The format: 8 bytes with the length of
a JSON header, the header (name -> dtype, shape, byte range), the data.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from espalier.errors import ModelFileError, UnsupportedError
from espalier.exec.executor import RawTensor, TensorType
from espalier.loaders.gguf_metadata import U64
from espalier.loaders.mapped_file import ByteCursor, MappedFile

_MAX_HEADER_BYTES = 100_000_000  # the format's own limit
_MAX_DIMENSIONS = 8
_DTYPES = {"F32": TensorType.F32, "F16": TensorType.F16, "BF16": TensorType.BF16}
_ELEMENT_BYTES = {TensorType.F32: 4, TensorType.F16: 2, TensorType.BF16: 2}


class SafetensorsFile:
    """One safetensors file, opened and checked.

    Raises ModelFileError where the file is missing, truncated or corrupt, and UnsupportedError for
    an element type other than F32, F16 and BF16.
    """

    def __init__(self, path: Path) -> None:
        self._file = MappedFile(path)
        cursor = ByteCursor(self._file, "safetensors")
        header = _read_header(cursor)
        self._data_start = cursor.position
        self._tensors = {
            name: _entry(cursor, name, value)
            for name, value in header.items()
            if name != "__metadata__"
        }
        end = 0
        for name, (_, _, start, stop) in sorted(self._tensors.items(), key=lambda t: t[1][2:]):
            if start != end:
                raise cursor.error(f"the data of {name} is not where the data before it ends")
            end = stop
        if end != cursor.remaining:
            raise cursor.error(f"{end:,} bytes of data should follow, not {cursor.remaining:,}")

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor by name, fastest dimension last."""
        return {name: shape for name, (_, shape, _, _) in self._tensors.items()}

    def tensor(self, name: str) -> RawTensor:
        """The tensor of that name, a view of the map; raises ModelFileError where there is none."""
        if name not in self._tensors:
            raise ModelFileError(f"{self._file.path} has no tensor {name!r}.")
        kind, shape, start, stop = self._tensors[name]
        return RawTensor(name, kind, shape, self._file.view(self._data_start + start, stop - start))

    def release_pages(self) -> None:
        """Gives back the memory of what was read; it is read again when asked for."""
        self._file.release_pages()


class SafetensorsShards:
    """Several safetensors files with the tensors of one model.

    Raises ModelFileError where a tensor is in two files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._file_of: dict[str, SafetensorsFile] = {}
        for path in paths:
            shard = SafetensorsFile(path)
            for name in shard.tensor_shapes:
                if name in self._file_of:
                    raise ModelFileError(f"{path} holds the tensor {name!r}, as another file does.")
                self._file_of[name] = shard

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor by name, fastest dimension last."""
        shapes: dict[str, tuple[int, ...]] = {}
        for shard in dict.fromkeys(self._file_of.values()):
            shapes.update(shard.tensor_shapes)
        return shapes

    def tensor(self, name: str) -> RawTensor:
        """The tensor of that name, a view of a map; raises ModelFileError where there is none."""
        if name not in self._file_of:
            raise ModelFileError(f"the model's safetensors files hold no tensor {name!r}.")
        return self._file_of[name].tensor(name)

    def release_pages(self) -> None:
        """Gives back the memory of what was read; it is read again when asked for."""
        for shard in dict.fromkeys(self._file_of.values()):
            shard.release_pages()


def _read_header(cursor: ByteCursor) -> Mapping[str, object]:
    length = int(cursor.number(U64, "the length of the header"))
    if not 2 <= length <= min(_MAX_HEADER_BYTES, cursor.remaining):
        raise cursor.error(f"the header should be {length:,} bytes long, which it cannot be", 0)
    start = cursor.position
    text = cursor.text(length, "the header")
    try:
        header = json.loads(text, object_pairs_hook=_unique_pairs)
    except (ValueError, RecursionError) as error:
        raise cursor.error(f"the header is not JSON ({error})", start) from None
    if not isinstance(header, dict):
        raise cursor.error("the header is not a JSON object", start)
    return header


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name is given twice")
    return values


def _entry(
    cursor: ByteCursor, name: str, value: object
) -> tuple[TensorType, tuple[int, ...], int, int]:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise cursor.error(f"the header's entry for {name} is not a tensor's", 8)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise cursor.error(f"the header's entry for {name} has a broken shape or range", 8)
    if dtype not in _DTYPES:
        raise UnsupportedError(
            f"{cursor.file.path} holds the tensor {name} of type {dtype!r}; supported are "
            f"{', '.join(_DTYPES)}. Use the model without quantisation, or a GGUF file."
        )
    kind = _DTYPES[dtype]
    start, stop = offsets
    if stop - start != math.prod(shape) * _ELEMENT_BYTES[kind]:
        raise cursor.error(f"{name} of shape {shape} has {stop - start:,} bytes of data", 8)
    return kind, tuple(shape), start, stop


def _are_sizes(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MAX_DIMENSIONS
        and all(type(size) is int and 0 <= size < 1 << 63 for size in value)
    )
