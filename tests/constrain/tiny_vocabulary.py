"""Vocabularies of a few tokens, on which every continuation can be tried."""

from __future__ import annotations

from espalier.constrain.matcher import Matcher
from espalier.errors import UserInputError


class TinyTokenizer:
    """Token i stands for the i-th byte string; `control` and `eos_ids` are no text."""

    def __init__(self, pieces: list[bytes], control: set[int], eos_ids: set[int]) -> None:
        self.pieces = pieces
        self.control = control
        self.eos_ids = frozenset(eos_ids)
        self.vocab_size = len(pieces)

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]

    def is_control(self, token_id: int) -> bool:
        return token_id in self.control


# Ends of text first and last, a control token whose text could match, an empty token, two tokens of
# the same bytes, parts of a character, a byte that no text has.
PIECES = [b"<end>", b"a", b"b", b"1", b"ab", b"ba", b"aab", b"ab", b"<ab>", b"", b"a1",
          b"\xc3", b"\xa9", b"\xa9a", "\u00e9".encode(), b"\xff", b"<eot>"]  # fmt: skip
TINY = TinyTokenizer(PIECES, control={8}, eos_ids={0, 16})
TEXT_IDS = [i for i in range(len(PIECES)) if i not in (0, 8, 16)]


def allowed(matcher: Matcher) -> set[int]:
    """Tokens of a mask."""
    words = matcher.mask()
    assert words.dtype.name == "uint32"
    return {
        32 * word + bit for word in range(len(words)) for bit in range(32) if words[word] >> bit & 1
    }


def spells(matcher: Matcher, text: str) -> bool:
    """A text is one of the form; for vocabularies whose first 256 tokens are the bytes."""
    try:
        for byte in text.encode():
            matcher.accept(byte)
    except UserInputError:
        return False
    return matcher.is_complete
