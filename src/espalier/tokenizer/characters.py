"""Where characters begin and end in the bytes of UTF-8 text."""

from __future__ import annotations

_CONTINUATIONS = bytes(range(0x80, 0xC0))
_LONGEST = 4  # bytes of a character


def begins_character(data: bytes) -> bool:
    """True unless the bytes begin inside a character."""
    return not data or data[0] & 0xC0 != 0x80


def whole_characters(data: bytes) -> bytes:
    """The bytes without an unfinished character at their end."""
    for length in range(len(data), max(len(data) - _LONGEST, -1), -1):
        if length == 0 or _is_text(data[max(0, length - _LONGEST) : length].lstrip(_CONTINUATIONS)):
            return data[:length]
    return data


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
