"""A shortest text of a form, found by trying bytes on its matcher.

Where the matcher does not tell which of its states are equal (state_key), one short text is found
by always taking the byte that is most likely to end it.
"""

from __future__ import annotations

import heapq

import numpy as np

from espalier.constrain.matcher import Matcher, MatcherTokenizer
from espalier.errors import CapacityError, UserInputError

MAX_EXPANSIONS = 4000  # states whose ways on are looked at
MAX_BYTES = 1 << 16
# Of texts of equal length: digits, then letters, then what closes, then the rest of ASCII.
_ORDER = (
    b"123456789aeinorstbcdfghjklmpquvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0"
    b"\"}]) \n.,:;!?'-_{[(/+*=<>@#$%&\\^`|~\t\r"
)
_CLOSING = b"\"}])0123456789 \n.,;:'aeinorst"


def single_byte_tokens(tokenizer: MatcherTokenizer) -> dict[int, int]:
    """The token of each byte that has one of its own."""
    found: dict[int, int] = {}
    for token_id in range(tokenizer.vocab_size):
        data = tokenizer.token_bytes(token_id)
        if len(data) == 1 and not tokenizer.is_control(token_id):
            found.setdefault(data[0], token_id)
    return found


def shortest_bytes(matcher: Matcher, byte_tokens: dict[int, int]) -> bytes | None:
    """The bytes of a shortest text from the matcher's start on; None where none was found.

    `matcher` must be at the start and is used up. Bounded in time and length.
    """
    try:
        if matcher.state_key is None:
            return _greedy(matcher, byte_tokens)
        found = _search(matcher, byte_tokens)
    except (CapacityError, UserInputError):
        return None
    return found


class _Walker:
    """A matcher that is moved from text to text."""

    def __init__(self, matcher: Matcher, byte_tokens: dict[int, int]) -> None:
        self.matcher = matcher
        self._byte_tokens = byte_tokens
        self._text = b""

    def go(self, text: bytes) -> None:
        common = 0
        while common < min(len(text), len(self._text)) and text[common] == self._text[common]:
            common += 1
        self.matcher.rollback(len(self._text) - common)
        self._text = self._text[:common]
        for byte in text[common:]:
            self.matcher.accept(self._byte_tokens[byte])
            self._text += bytes((byte,))

    def forced(self) -> bytes:
        """What must follow, as far as its bytes have tokens."""
        data = self.matcher.forced_bytes()
        for index, byte in enumerate(data):
            if byte not in self._byte_tokens:
                return data[:index]
        return data


def _search(matcher: Matcher, byte_tokens: dict[int, int]) -> bytes | None:
    walker = _Walker(matcher, byte_tokens)
    order = [*_ORDER, *(byte for byte in range(256) if byte not in _ORDER)]
    queue: list[tuple[int, int, bytes]] = [(0, 0, b"")]
    seen = set()
    count = 0
    for _ in range(MAX_EXPANSIONS):
        if not queue:
            return None
        _, _, text = heapq.heappop(queue)
        walker.go(text)
        if matcher.state_key in seen:
            continue
        seen.add(matcher.state_key)
        if matcher.is_complete:
            return text
        forced = walker.forced()
        if forced:
            count += 1
            if len(text) + len(forced) <= MAX_BYTES:
                heapq.heappush(queue, (len(text) + len(forced), count, text + forced))
            continue
        for byte in _allowed(matcher, byte_tokens, order):
            count += 1
            heapq.heappush(queue, (len(text) + 1, count, text + bytes((byte,))))
    return None


def _greedy(matcher: Matcher, byte_tokens: dict[int, int]) -> bytes | None:
    walker = _Walker(matcher, byte_tokens)
    order = [*_CLOSING, *(byte for byte in (*_ORDER, *range(256)) if byte not in _CLOSING)]
    text = b""
    while len(text) < MAX_BYTES // 16:
        if matcher.is_complete:
            return text
        step = walker.forced()
        if not step:
            options = _allowed(matcher, byte_tokens, order)
            if not options:
                return None
            step = bytes(options[:1])
        text += step
        walker.go(text)
    return None


def _allowed(matcher: Matcher, byte_tokens: dict[int, int], order: list[int]) -> list[int]:
    """The bytes that may follow, in the order given."""
    words = matcher.mask()
    ids = np.array([byte_tokens.get(byte, 0) for byte in order], dtype=np.int64)
    is_allowed = (words[ids // 32] >> (ids % 32).astype(np.uint32)) & 1
    return [
        byte
        for byte, allowed in zip(order, is_allowed.tolist(), strict=True)
        if allowed and byte in byte_tokens
    ]
