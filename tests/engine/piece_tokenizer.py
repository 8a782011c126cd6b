"""A byte-pair encoding of eight characters with sixteen tokens, for the hash model.

Merges overlap, so that a text has many encodings and later text changes the tokens of earlier text.
"""

from __future__ import annotations

from itertools import pairwise

from tests.engine.fakes import EOS_ID, VOCAB_SIZE, LetterDecoder

PIECES = ("a", "b", "c", "d", "e", "{", "}", ",", "ab", "bc", "abc", "{a", "de", "},", "cd", "ee")
MERGES = ("ab", "cd", "abc", "bc", "de", "},", "{a", "ee")  # in order of their rank
CHARACTERS = "".join(piece for piece in PIECES if len(piece) == 1)


class PieceTokenizer:
    vocab_size = VOCAB_SIZE
    eos_ids = (EOS_ID,)

    def token_bytes(self, token_id: int) -> bytes:
        return LetterDecoder(PIECES).push(token_id).encode()

    def is_control(self, token_id: int) -> bool:
        return token_id == EOS_ID

    def decoder(self, *, skip_special_tokens: bool = True) -> LetterDecoder:
        return LetterDecoder(PIECES)

    def encode(self, text: str, *, at_start: bool = True) -> list[int]:
        parts = list(text)
        while True:
            pairs = [left + right for left, right in pairwise(parts)]
            ranked = [MERGES.index(pair) for pair in pairs if pair in MERGES]
            if not ranked:
                return [PIECES.index(part) for part in parts]
            index = pairs.index(MERGES[min(ranked)])
            parts[index : index + 2] = [pairs[index]]
