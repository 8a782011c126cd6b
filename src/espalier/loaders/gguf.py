"""The GGUF container: metadata and tensors over one read-only map.

Knows the container (versions 2 and 3, little endian) and nothing of what the tensors are for.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from espalier import _native
from espalier.errors import ModelFileError, UnsupportedError
from espalier.exec.executor import RawTensor, TensorType
from espalier.loaders.gguf_metadata import U32, U64, count, read_metadata, string
from espalier.loaders.mapped_file import ByteCursor, MappedFile

_MAGIC = b"GGUF"
_MAGIC_NUMBER = struct.unpack("<I", _MAGIC)[0]
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_ALIGNMENT = 1 << 20
_MAX_DIMENSIONS = 4
_MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8  # name, dimensions, type, offset

# Names of the type numbers of the format; those of TensorType can be loaded.
_TYPE_NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4",
}  # fmt: skip


class GgufFile:
    """A GGUF file, opened and checked.

    Raises ModelFileError where the file is missing, truncated or corrupt (with the byte), and
    UnsupportedError for a tensor type or container version that Espalier does not read.

    Attributes:
        metadata: key -> int, float, bool, str or list of one of these, as in the file.
    """

    metadata: Mapping[str, object]

    def __init__(self, path: Path) -> None:
        self._file = MappedFile(path)
        cursor = ByteCursor(self._file, "GGUF")
        _read_version(cursor)
        num_tensors = count(cursor, "the number of tensors", _MIN_TENSOR_BYTES)
        num_pairs = count(cursor, "the number of metadata pairs", 1)
        self.metadata = read_metadata(cursor, num_pairs)
        _check_not_split(self.metadata, path)
        alignment = _alignment(self.metadata, cursor)
        self._tensors = {
            name: (kind, shape, offset)
            for name, kind, shape, offset in _tensor_infos(cursor, num_tensors)
        }
        self._data_start = -(-cursor.position // alignment) * alignment
        self._check_data(cursor, alignment)

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return self._file.path

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor by name, in the file's order, fastest dimension last."""
        return {name: shape for name, (_, shape, _) in self._tensors.items()}

    @property
    def tensor_names(self) -> tuple[str, ...]:
        """Names of the tensors in the file's order."""
        return tuple(self._tensors)

    def tensor(self, name: str) -> RawTensor:
        """The tensor of that name, a view of the map; raises ModelFileError where there is none."""
        if name not in self._tensors:
            raise ModelFileError(f"{self.path} has no tensor {name!r}.")
        kind, shape, offset = self._tensors[name]
        num_bytes = _native.packed_bytes(kind.value, math.prod(shape))
        return RawTensor(name, kind, shape, self._file.view(self._data_start + offset, num_bytes))

    def release_pages(self) -> None:
        """Gives back the memory of what was read; it is read again when asked for."""
        self._file.release_pages()

    def _check_data(self, cursor: ByteCursor, alignment: int) -> None:
        """Every tensor lies inside the file, aligned, and apart from the others."""
        end = 0
        for name, (kind, shape, offset) in sorted(self._tensors.items(), key=lambda t: t[1][2]):
            start = self._data_start + offset
            num_bytes = _native.packed_bytes(kind.value, math.prod(shape))
            if start + num_bytes > self._file.num_bytes:
                missing = start + num_bytes - self._file.num_bytes
                raise cursor.error(
                    f"the tensor {name} begins, but the file is {missing:,} bytes too short for it",
                    start,
                )
            if offset % alignment or offset < end:
                raise cursor.error(
                    f"the tensor {name} begins, which is not aligned to {alignment} bytes or lies "
                    "inside another tensor",
                    start,
                )
            end = offset + num_bytes


def _read_version(cursor: ByteCursor) -> None:
    path = cursor.file.path
    magic = int(cursor.number(U32, "the magic number"))
    if magic != _MAGIC_NUMBER:
        found = struct.pack("<I", magic)
        raise ModelFileError(
            f"{path} is not a GGUF file: it begins with {found!r}, not {_MAGIC!r}. Give a GGUF "
            "file or a Hugging Face model folder."
        )
    version = int(cursor.number(U32, "the version"))
    if version not in _VERSIONS:
        what = "big-endian" if version & 0xFFFF == 0 and version else f"of GGUF version {version}"
        raise UnsupportedError(
            f"{path} is {what}; little-endian files of the versions 2 and 3 are supported."
        )


def _check_not_split(metadata: Mapping[str, object], path: Path) -> None:
    num_parts = metadata.get("split.count", 1)
    if num_parts not in (0, 1):
        raise UnsupportedError(
            f"{path} is one of {num_parts} parts of a model; a single GGUF file is supported. "
            "Merge the parts first (llama-gguf-split --merge)."
        )


def _alignment(metadata: Mapping[str, object], cursor: ByteCursor) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or not 8 <= value <= _MAX_ALIGNMENT or value & (value - 1):
        raise cursor.error(f"general.alignment is {value!r}, not a power of two from 8 to 2**20")
    return value


def _tensor_infos(
    cursor: ByteCursor, num_tensors: int
) -> Iterator[tuple[str, TensorType, tuple[int, ...], int]]:
    seen: set[str] = set()
    unsupported: dict[str, str] = {}
    for _ in range(num_tensors):
        start = cursor.position
        name = string(cursor, "a tensor's name")
        if not name or name in seen:
            raise cursor.error(f"the tensor name {name[:80]!r} is empty or given twice", start)
        seen.add(name)
        shape = _shape(cursor, name)
        number = int(cursor.number(U32, f"the type of {name}"))
        offset = int(cursor.number(U64, f"the offset of {name}"))
        type_name = _TYPE_NAMES.get(number)
        if type_name is None or type_name not in TensorType.__members__:
            unsupported[name] = type_name or f"number {number}"
            continue
        kind = TensorType[type_name]
        _check_blocks(cursor, name, kind, shape, start)
        yield name, kind, shape, offset
    if unsupported:
        raise UnsupportedError(_unsupported_types(cursor.file.path, unsupported))


def _shape(cursor: ByteCursor, name: str) -> tuple[int, ...]:
    start = cursor.position
    num_dimensions = int(cursor.number(U32, f"the dimensions of {name}"))
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise cursor.error(f"{name} has {num_dimensions} dimensions; 1 to 4 are allowed", start)
    sizes = [int(cursor.number(U64, f"the shape of {name}")) for _ in range(num_dimensions)]
    # No type takes less than one bit an element; the exact size is checked with the data.
    if 0 in sizes or math.prod(sizes) > 8 * cursor.file.num_bytes:
        raise cursor.error(f"{name} has the shape {sizes}, which the file has no room for", start)
    return tuple(reversed(sizes))


def _check_blocks(
    cursor: ByteCursor, name: str, kind: TensorType, shape: tuple[int, ...], start: int
) -> None:
    try:
        _native.packed_bytes(kind.value, shape[-1])
    except ValueError as error:
        raise cursor.error(f"the tensor {name} has rows of which {error}", start) from None


def _unsupported_types(path: Path, found: dict[str, str]) -> str:
    name, kind = next(iter(found.items()))
    return (
        f"{path} holds tensors of the types {', '.join(sorted(set(found.values())))} (such as "
        f"{name}: {kind}); supported are {', '.join(TensorType.__members__)}. Use another "
        "quantisation of the model."
    )
