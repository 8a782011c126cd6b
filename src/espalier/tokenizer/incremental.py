"""Turns tokens into text one by one, without ever giving out half a character."""

from __future__ import annotations

import codecs
from collections.abc import Callable

# Bytes of a token (None: it is not shown), and whether it begins a text.
TokenReader = Callable[[int], "tuple[bytes | None, bool]"]


class IncrementalDecoder:
    """Decoder of one token sequence; constant work per token.

    The pushes and `finish` joined equal the decoding of the whole sequence: bytes that are no
    UTF-8 become U+FFFD as `bytes.decode(errors="replace")` does it, as soon as it is certain that
    no later byte can complete them. Not for use by two threads at once.
    """

    def __init__(self, read: TokenReader, *, drops_space: bool) -> None:
        self._read = read
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._drops_space = drops_space
        self._has_pending = False

    @property
    def has_pending(self) -> bool:
        """True while bytes of a character that is not whole yet are held back."""
        return self._has_pending

    def push(self, token_id: int) -> str:
        """Text that is certain now; "" while a character is incomplete. Raises PromptError."""
        data = self.bytes_of(token_id)
        if not self._has_pending and data.isascii():  # as most tokens are
            return data.decode("ascii")
        return self.push_bytes(data)

    def push_bytes(self, data: bytes) -> str:
        """Text that is certain now, after bytes that need not be those of a token."""
        text = self._utf8.decode(data)
        self._has_pending = bool(self._utf8.getstate()[0])
        return text

    def bytes_of(self, token_id: int) -> bytes:
        """Bytes that the next token adds, without decoding them."""
        data, begins_text = self._read(token_id)
        if begins_text:
            self._drops_space = True
        elif data and self._drops_space:
            self._drops_space = False
            return data[1:] if data.startswith(b" ") else data
        return data or b""

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed, or ""."""
        self._has_pending = False
        return self._utf8.decode(b"", final=True)
