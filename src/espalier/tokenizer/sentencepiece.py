"""SentencePiece-style merging by scores, as llama.cpp does it. Knows no special tokens.

A text is a row of characters; the neighbouring pair whose union is the token of the highest score
is merged, the leftmost among equals, until no pair makes a token. What is no token then becomes
byte tokens. No merge can cross a point where no token has the two characters beside it, so that a
text is cut there into words, and a word's tokens are kept.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence
from itertools import pairwise
from math import inf, isnan

from espalier.errors import ModelFileError
from espalier.tokenizer.vocabulary import TokenKind

SPACE = "\u2581"  # how a space is written in token texts
_HEAP_FROM_LENGTH = 48  # characters; below it scanning a list beats a heap
_CACHED_WORD_LENGTH = 64
_CACHED_WORDS = 1 << 16
_MERGED_KINDS = frozenset(
    {TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNUSED}
)  # text never merges into a control or byte token


class SentencePieceEncoder:
    """Encodes text that holds no special tokens. Raises ModelFileError for a score that is NaN."""

    splits_at_lines = True  # merges know nothing but the characters on both sides

    def __init__(
        self, texts: Sequence[str], kinds: bytes, scores: Sequence[float], unk_id: int | None
    ) -> None:
        self._ids = {
            text: token_id
            for token_id, text in enumerate(texts)
            if kinds[token_id] in _MERGED_KINDS
        }
        self._scores = {text: scores[token_id] for text, token_id in self._ids.items()}
        if any(map(isnan, self._scores.values())):
            raise ModelFileError("a token's score is not a number. The file is damaged.")
        self._byte_ids = _byte_ids(texts, kinds, self._ids, unk_id)
        self._words = re.compile(_word_pattern(self._ids))
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str, *, adds_space: bool = False) -> list[int]:
        """Token ids of a text; spaces and U+2581 are the same to this scheme."""
        text = " " + text if adds_space else text
        ids: list[int] = []
        cache = self._cache
        for word in self._words.findall(text.replace(" ", SPACE)):
            known = cache.get(word)
            if known is None:
                known = self._encode_word(word)
                if len(word) <= _CACHED_WORD_LENGTH:
                    if len(cache) >= _CACHED_WORDS:
                        cache.clear()
                    cache[word] = known
            ids += known
        return ids

    def _encode_word(self, word: str) -> list[int]:
        merge = merge_by_scan if len(word) < _HEAP_FROM_LENGTH else merge_by_heap
        ids: list[int] = []
        for symbol in merge(word, self._scores):
            token_id = self._ids.get(symbol)
            if token_id is None:
                byte_ids = (self._byte_ids[byte] for byte in symbol.encode("utf-8"))
                ids += [byte_id for byte_id in byte_ids if byte_id is not None]
            else:
                ids.append(token_id)
        return ids


def merge_by_scan(word: str, scores: dict[str, float]) -> list[str]:
    """Merges the best pair until none is left, looking for it in a list."""
    symbols = list(word)
    pair_scores = [scores.get(left + right, -inf) for left, right in pairwise(symbols)]
    while pair_scores and (best := max(pair_scores)) > -inf:
        at = pair_scores.index(best)
        symbols[at] += symbols.pop(at + 1)
        del pair_scores[at]
        if at > 0:
            pair_scores[at - 1] = scores.get(symbols[at - 1] + symbols[at], -inf)
        if at < len(pair_scores):
            pair_scores[at] = scores.get(symbols[at] + symbols[at + 1], -inf)
    return symbols


def merge_by_heap(word: str, scores: dict[str, float]) -> list[str]:
    """The same, looking for the best pair in a heap: n log n for long words."""
    symbols = list(word)
    count = len(symbols)
    before = list(range(-1, count - 1))
    after = list(range(1, count + 1))
    heap: list[tuple[float, int, int, int]] = []  # -score, left, right, length of the union

    def offer(left: int, right: int) -> None:
        union = symbols[left] + symbols[right]
        score = scores.get(union, -inf)
        if score > -inf:
            heapq.heappush(heap, (-score, left, right, len(union)))

    for index in range(count - 1):
        offer(index, index + 1)
    while heap:
        _, left, right, length = heapq.heappop(heap)
        first, second = symbols[left], symbols[right]
        if not first or not second or len(first) + len(second) != length:
            continue  # one of the two has been merged since
        symbols[left], symbols[right] = first + second, ""
        following = after[left] = after[right]
        if following < count:
            before[following] = left
            offer(left, following)
        if before[left] >= 0:
            offer(before[left], left)
    return [symbol for symbol in symbols if symbol]


def _word_pattern(ids: dict[str, int]) -> str:
    """Matches the words of a text: cut before a space, unless a token has that very border."""
    spaced = (text for text in ids if SPACE in text[1:])
    borders = {char for text in spaced for char in re.findall(f"([^{SPACE}]){SPACE}", text)}
    joining = "".join(map(re.escape, sorted(borders)))
    inner = f"[^{SPACE}]" + (f"|(?<=[{joining}]){SPACE}+" if joining else "")
    return f"{SPACE}*(?:{inner})+|{SPACE}+"


def _byte_ids(
    texts: Sequence[str], kinds: bytes, ids: dict[str, int], unk_id: int | None
) -> list[int | None]:
    """Token of each byte: the byte token, else the byte's character, else the unknown token."""
    by_text = {text: index for index, text in enumerate(texts) if kinds[index] == TokenKind.BYTE}
    return [by_text.get(f"<0x{byte:02X}>", ids.get(chr(byte), unk_id)) for byte in range(256)]
