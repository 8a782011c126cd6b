"""Which tokens of a vocabulary begin with given bytes, or are the beginning of them."""

from __future__ import annotations

from bisect import bisect_left

from espalier.tokenizer.tokenizer import Tokenizer


class TokenIndex:
    """The text tokens of a vocabulary in order of their bytes; control tokens are left out."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._sorted: list[tuple[bytes, int]] = sorted(
            (data, token_id)
            for token_id in range(tokenizer.vocab_size)
            if not tokenizer.is_control(token_id) and (data := tokenizer.token_bytes(token_id))
        )

    def starting_with(self, prefix: bytes) -> list[int]:
        """Tokens whose bytes begin with `prefix` (or are equal to it)."""
        first = bisect_left(self._sorted, (prefix, -1))
        found = []
        for data, token_id in self._sorted[first:]:
            if not data.startswith(prefix):
                break
            found.append(token_id)
        return found

    def proper_prefixes(self, data: bytes) -> list[tuple[bytes, int]]:
        """Tokens whose bytes are a shorter beginning of `data`."""
        found = []
        for length in range(1, len(data)):
            prefix = data[:length]
            index = bisect_left(self._sorted, (prefix, -1))
            while index < len(self._sorted) and self._sorted[index][0] == prefix:
                found.append(self._sorted[index])
                index += 1
        return found
