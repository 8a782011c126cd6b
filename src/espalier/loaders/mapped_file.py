"""A model file as one read-only map of bytes, and bounded reads from it.

Knows bytes and byte positions, no format. Every error names the file, and the byte where it broke.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from espalier.errors import ModelFileError


class MappedFile:
    """The bytes of a file, mapped: pages come from the disk when they are first read.

    Raises ModelFileError where the file is missing, empty or not readable. The map lives as long
    as any array that was taken from it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise ModelFileError(f"{path} does not exist; give the path of a model file.") from None
        except (OSError, ValueError) as error:
            reason = "it is empty" if isinstance(error, ValueError) else error.strerror
            raise ModelFileError(f"{path} cannot be read: {reason}.") from error
        self.num_bytes = len(self.map)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.map, dtype=np.uint8)

    def release_pages(self) -> None:
        """Gives back the memory of pages that were read; they are read again when asked for."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self.map.madvise(mmap.MADV_DONTNEED)

    def view(self, start: int, num_bytes: int) -> NDArray[np.uint8]:
        """A flat read-only view of bytes that are known to lie inside the file."""
        assert 0 <= start <= start + num_bytes <= self.num_bytes
        return self.bytes[start : start + num_bytes]


class ByteCursor:
    """Reads little-endian values one after the other; no read goes beyond the end of the file."""

    def __init__(self, file: MappedFile, kind: str) -> None:
        self.file = file
        self.kind = kind
        self.position = 0

    @property
    def remaining(self) -> int:
        """Bytes between here and the end of the file."""
        return self.file.num_bytes - self.position

    def error(self, what: str, position: int | None = None) -> ModelFileError:
        """The error to raise for what is wrong here (or at another byte)."""
        place = self.position if position is None else position
        return ModelFileError(
            f"{self.file.path} is not a sound {self.kind} file: at byte {place:,} {what}. "
            "Fetch the file again."
        )

    def require(self, num_bytes: int, what: str) -> None:
        """Raises unless that many bytes remain."""
        if num_bytes > self.remaining:
            raise self.error(
                f"{what} needs {num_bytes:,} bytes, but the file ends after {self.remaining:,} more"
            )

    def number(self, layout: struct.Struct, what: str) -> int | float | bool:
        """One number in a layout of a single field."""
        self.require(layout.size, what)
        (value,) = layout.unpack_from(self.file.map, self.position)
        self.position += layout.size
        assert isinstance(value, (int, float))
        return value

    def text(self, num_bytes: int, what: str) -> str:
        """UTF-8 text of a known length."""
        self.require(num_bytes, what)
        start, end = self.position, self.position + num_bytes
        try:
            text = str(self.file.map[start:end], "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8 text", start + error.start) from None
        self.position = end
        return text

    def array(self, dtype: np.dtype[np.generic], count: int, what: str) -> NDArray[np.generic]:
        """`count` numbers of a type, as a read-only view."""
        num_bytes = count * dtype.itemsize
        self.require(num_bytes, what)
        values = self.file.view(self.position, num_bytes).view(dtype)
        self.position += num_bytes
        return values
