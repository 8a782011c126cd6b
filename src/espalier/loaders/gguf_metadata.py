"""Reads the key-value pairs of a GGUF file into Python values.

The `gguf` package's reader takes seconds for the vocabularies of today; this one takes tens of
milliseconds and checks every length before it uses it.
"""

from __future__ import annotations

import struct

import numpy as np

from espalier import _native
from espalier.loaders.mapped_file import ByteCursor

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
_BOOL, _STRING, _ARRAY = 7, 8, 9
# type number -> numpy form of the numeric types
_NUMBERS: dict[int, str] = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_MAX_KEY_BYTES = 65_535  # the format's own limit
_MAX_ARRAY = 1 << 24  # elements; the largest vocabularies have 2 ** 18
_MIN_PAIR_BYTES = 8 + 4 + 1  # length of the key, type, one byte of value


def count(cursor: ByteCursor, what: str, smallest_bytes: int) -> int:
    """A 64-bit count of things that take at least so many bytes each in the rest of the file."""
    start = cursor.position
    value = int(cursor.number(U64, what))
    if value * smallest_bytes > cursor.remaining:
        raise cursor.error(f"{what} is {value:,}, more than the file has room for", start)
    return value


def string(cursor: ByteCursor, what: str) -> str:
    """A string with its 64-bit length before it."""
    return cursor.text(count(cursor, f"the length of {what}", 1), what)


def read_metadata(cursor: ByteCursor, num_pairs: int) -> dict[str, object]:
    """The pairs in order; values are int, float, bool, str or a list of one of these.

    Raises ModelFileError where a length, type, key or value is not what the format allows.
    """
    cursor.require(num_pairs * _MIN_PAIR_BYTES, f"{num_pairs:,} metadata pairs")
    metadata: dict[str, object] = {}
    for _ in range(num_pairs):
        start = cursor.position
        key = string(cursor, "a metadata key")
        if not key or len(key) > _MAX_KEY_BYTES or key in metadata:
            raise cursor.error(
                f"the metadata key {key[:80]!r} is empty, too long or given twice", start
            )
        kind = int(cursor.number(U32, f"the type of {key}"))
        metadata[key] = _value(cursor, kind, key)
    return metadata


def _value(cursor: ByteCursor, kind: int, key: str) -> object:
    if kind == _STRING:
        return string(cursor, key)
    if kind == _ARRAY:
        element = int(cursor.number(U32, f"the element type of {key}"))
        return _array(cursor, element, key)
    return _numbers(cursor, kind, 1, key)[0]


def _array(cursor: ByteCursor, kind: int, key: str) -> list[object]:
    start = cursor.position
    length = count(cursor, f"the length of {key}", 8 if kind == _STRING else 1)
    if length > _MAX_ARRAY:
        raise cursor.error(f"{key} has {length:,} elements; {_MAX_ARRAY:,} are allowed", start)
    if kind == _STRING:
        return _strings(cursor, length, key)
    return _numbers(cursor, kind, length, key)


def _numbers(cursor: ByteCursor, kind: int, length: int, key: str) -> list[object]:
    start = cursor.position
    if kind == _BOOL:
        flags = cursor.array(np.dtype(np.uint8), length, key)
        if length and flags.max() > 1:
            raise cursor.error(f"{key} holds a bool that is neither 0 nor 1", start)
        return list(flags.astype(bool).tolist())
    if kind not in _NUMBERS:
        raise cursor.error(f"{key} has the unknown or nested value type {kind}", start)
    return list(cursor.array(np.dtype(_NUMBERS[kind]), length, key).tolist())


def _strings(cursor: ByteCursor, length: int, key: str) -> list[object]:
    strings, position = _native.read_strings(cursor.file.bytes, cursor.position, length)
    cursor.position = position
    if len(strings) < length:  # the next one is damaged; reading it says how
        string(cursor, f"string {len(strings):,} of {key}")
        raise AssertionError("a string could be read after all")
    return list(strings)
