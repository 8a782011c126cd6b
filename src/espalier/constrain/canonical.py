"""Canonical tokens: those that a tokenizer gives for a whole text, kept while the text grows.

A model has seen canonical tokens only, so other tokens of the same text are the beginning of
something that it does not know. Owns healing: which tokens at the end of an output must be
replaced once a token is added, and which tokens stand for bytes that are forced. Knows no grammar
and no KV; the text of an output is tokenised by itself, after its prompt.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.constrain.matcher import MatcherTokenizer
from espalier.tokenizer.characters import begins_character, whole_characters

MAX_PAIRS = 1 << 18  # pairs of tokens that are remembered
MAX_SUFFIXES = 1 << 14
CONTEXT_TOKENS = 16  # before forced text that tell which tokens it has
MAX_TRIED_TOKENS = 64  # tokens across a border that are tried one by one
MAX_TRIED_TEXTS = 128  # after one extension
MAX_KNOWN_TOKENS = 1 << 20  # of all extensions that are remembered
_NO_BYTE = 256
_WINDOWS = (8, 64)  # tokens that are tokenised again before all of the text is


class CanonicalTokenizer(MatcherTokenizer, Protocol):
    """The part of a tokenizer that is needed here."""

    def encode(self, text: str, *, at_start: bool = True) -> list[int]:
        """Tokens of a text; `at_start` false for a text that goes on after other tokens."""
        ...


class Replacement(NamedTuple):
    """The output's first `num_kept` tokens stay, `token_ids` come after them."""

    num_kept: int
    token_ids: list[int]


class Extensions:
    """Extensions that were found, by where they were: the least recently used go first."""

    def __init__(self, max_entries: int = MAX_SUFFIXES, max_tokens: int = MAX_KNOWN_TOKENS) -> None:
        self._max_entries = max_entries
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._entries: OrderedDict[Hashable, tuple[int, list[int]]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> tuple[int, list[int]] | None:
        """Number of tokens replaced and the tokens that replace them, None for an unknown key."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: Hashable, extension: tuple[int, list[int]]) -> None:
        """Remembers an extension. Lists are shared: nobody may change them."""
        with self._lock:
            _, replaced = self._entries.pop(key, (0, []))
            self._entries[key] = extension
            self._num_tokens += len(extension[1]) - len(replaced)
            while len(self._entries) > self._max_entries or self._num_tokens > self._max_tokens:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._num_tokens -= len(dropped)


class Canonicaliser:
    """Heals the ends of outputs for one tokenizer. Safe to share between threads.

    Attributes:
        known: extensions that guides have found.
    """

    def __init__(self, tokenizer: CanonicalTokenizer) -> None:
        self._tokenizer = tokenizer
        self.known = Extensions()
        self._pairs: dict[tuple[int, int], bool] = {}
        self._followers: dict[bytes, frozenset[int]] = {}
        ids = range(tokenizer.vocab_size)
        eos_ids = frozenset(tokenizer.eos_ids)
        # Of a tokenizer whose end of text is no control token, it is no text all the same.
        self._is_control = [i in eos_ids or tokenizer.is_control(i) for i in ids]
        self._bytes = [tokenizer.token_bytes(token_id) for token_id in ids]
        self._sorted = sorted(
            {
                data
                for data, is_control in zip(self._bytes, self._is_control, strict=True)
                if not is_control
            }
        )
        self._first_bytes = np.array(
            [
                data[0] if data and not is_control else _NO_BYTE
                for data, is_control in zip(self._bytes, self._is_control, strict=True)
            ],
            dtype=np.int64,
        )
        self._longest = max(map(len, self._sorted), default=0)

    def heal(self, token_ids: Sequence[int]) -> Replacement | None:
        """What makes tokens canonical of which all but the last are; None where they are.

        While the text ends inside a character nothing is changed.
        """
        if self._is_control[token_ids[-1]]:
            return None
        start = self._pair_start(token_ids)
        if start is None or self._is_canonical(tuple(token_ids[start:])):
            return None
        return self._retokenised(token_ids, b"")

    def extend(
        self,
        token_ids: Sequence[int],
        forced: bytes,
        next_bytes: Callable[[Replacement], frozenset[int]],
    ) -> Replacement | None:
        """Tokens for bytes that must follow, as far as no later text can change them.

        `next_bytes` tells which bytes may come after the text of a replacement, none where the
        text must end there. The tokens at the end that one of those could change are left to be
        generated. None where no token is certain. It looks at the last CONTEXT_TOKENS tokens only.
        """
        num_before = max(0, len(token_ids) - CONTEXT_TOKENS)
        context = token_ids[num_before:]
        whole = self._retokenised(context, forced, is_all=num_before == 0)
        if whole is None or not whole.token_ids:
            return None
        following = next_bytes(Replacement(num_before + whole.num_kept, whole.token_ids))
        count = self._num_certain(context, whole, following)
        num_known = len(self.text_bytes(context[whole.num_kept :]))
        certain = whole.token_ids[:count]
        if len(self.text_bytes(certain)) <= num_known:
            return None
        return Replacement(num_before + whole.num_kept, certain)

    def first_bytes(self, mask: NDArray[np.uint32]) -> frozenset[int]:
        """The bytes that the tokens of a mask begin with."""
        bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: len(self._first_bytes)]
        known = self._first_bytes[: len(bits)]
        found = np.bincount(known[bits != 0], minlength=_NO_BYTE + 1)
        return frozenset(np.flatnonzero(found[:_NO_BYTE]).tolist())

    def text_bytes(self, token_ids: Sequence[int]) -> bytes:
        """The bytes of tokens, joined."""
        return b"".join([self._bytes[token_id] for token_id in token_ids])

    def _pair_start(self, token_ids: Sequence[int]) -> int | None:
        """Where the shortest end of whole characters begins that tells whether all is canonical.

        None where the text ends inside a character.
        """
        end = self.text_bytes(token_ids[-4:])[-4:]
        if len(whole_characters(end)) < len(end):
            return None
        start = len(token_ids)
        for _ in range(2):  # the last characters, and those before them
            while start > 0 and not self._is_control[token_ids[start - 1]]:
                start -= 1
                if begins_character(self._bytes[token_ids[start]]):
                    break
        return start

    def _is_canonical(self, token_ids: tuple[int, ...]) -> bool:
        if len(token_ids) > 2:
            return self._encoded(self.text_bytes(token_ids)) == list(token_ids)
        key = (token_ids[0], token_ids[1] if len(token_ids) == 2 else -1)
        known = self._pairs.get(key)
        if known is None:
            if len(self._pairs) >= MAX_PAIRS:
                self._pairs.clear()
            known = self._encoded(self.text_bytes(token_ids)) == list(token_ids)
            self._pairs[key] = known
        return known

    def _retokenised(
        self, token_ids: Sequence[int], more: bytes, *, is_all: bool = True
    ) -> Replacement | None:
        """The tokens of the text and of `more`, as far as it is whole characters.

        None where they would stand for other bytes, as where bytes have no token. `is_all`: no
        other tokens come before these.
        """
        for size in (*_WINDOWS, len(token_ids)):
            start = self._window_start(token_ids, size)
            window = token_ids[start:]
            data = whole_characters(self.text_bytes(window) + more)
            encoded = self._encoded(data)
            if encoded is None:
                return None
            num_same = _common_length(window, encoded)
            if num_same or (is_all and (start == 0 or size >= len(token_ids))):
                return Replacement(start + num_same, encoded[num_same:])
        return None

    def _window_start(self, token_ids: Sequence[int], size: int) -> int:
        """Where a window of about `size` tokens begins: at a character, after control tokens."""
        start = len(token_ids)
        first = start
        while start > 0 and not self._is_control[token_ids[start - 1]]:
            start -= 1
            if begins_character(self._bytes[token_ids[start]]):
                first = start
                if len(token_ids) - start >= size:
                    break
        return first

    def _encoded(self, data: bytes) -> list[int] | None:
        if not data:
            return []
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        token_ids = self._tokenizer.encode(text, at_start=False)
        if self.text_bytes(token_ids) != data or any(self._is_control[i] for i in token_ids):
            return None
        return token_ids

    def _num_certain(
        self, token_ids: Sequence[int], whole: Replacement, next_bytes: frozenset[int]
    ) -> int:
        """How many tokens of a replacement stay the same whatever text follows it.

        A later text changes them through a token of the vocabulary that reaches across the end.
        """
        count = len(whole.token_ids)
        if not next_bytes:
            return count
        start = self._window_start(token_ids[: whole.num_kept], _WINDOWS[0])
        tail = [*token_ids[start : whole.num_kept], *whole.token_ids]
        num_tail = len(tail)
        num_before = num_tail - count
        data = self.text_bytes(tail)
        near = num_tail - self._num_before(tail, len(data) - self._longest) + _WINDOWS[0]
        tried: set[bytes] = set()
        for begin in range(max(0, len(data) - self._longest + 1), len(data)):
            rests = self._reaching(data[begin:], next_bytes)
            if rests is None or len(tried) > MAX_TRIED_TEXTS:
                count = min(count, self._num_before(tail, begin) - num_before)
                continue
            for rest in set(rests) - tried:
                count = min(count, self._num_same(tail, rest, near) - num_before)
            tried.update(rests)
            if count <= 0:
                return 0
        return count

    def _num_same(self, token_ids: list[int], more: bytes, near: int) -> int:
        """How many of some tokens stay the same when `more` follows their text.

        The last `near` of them are looked at, all only where those do not tell.
        """
        for size in (near, len(token_ids)):
            start = self._window_start(token_ids, size)
            window = token_ids[start:]
            longer = self._encoded(whole_characters(self.text_bytes(window) + more))
            if longer is None:
                break
            num_same = _common_length(window, longer)
            if num_same:
                return start + num_same
        return len(token_ids) if longer is None else 0

    def _num_before(self, token_ids: Sequence[int], position: int) -> int:
        """How many tokens end at or before a byte of their text."""
        end = 0
        for index, token_id in enumerate(token_ids):
            end += len(self._bytes[token_id])
            if end > position:
                return index
        return len(token_ids)

    def _reaching(self, suffix: bytes, next_bytes: frozenset[int]) -> list[bytes] | None:
        """What tokens that begin with `suffix` hold after it; None for too many of them."""
        found: list[bytes] = []
        for byte in self._followers_of(suffix) & next_bytes:
            prefix = suffix + bytes([byte])
            index = bisect_left(self._sorted, prefix)
            while index < len(self._sorted) and self._sorted[index].startswith(prefix):
                found.append(self._sorted[index][len(suffix) :])
                if len(found) > MAX_TRIED_TOKENS:
                    return None
                index += 1
        return found

    def _followers_of(self, prefix: bytes) -> frozenset[int]:
        """The bytes that come after `prefix` in tokens that begin with it."""
        known = self._followers.get(prefix)
        if known is None:
            found = []
            index = bisect_left(self._sorted, prefix + b"\x00")
            while index < len(self._sorted) and self._sorted[index].startswith(prefix):
                byte = self._sorted[index][len(prefix)]
                found.append(byte)
                if byte == 255:
                    break
                index = bisect_left(self._sorted, prefix + bytes([byte + 1]))
            if len(self._followers) >= MAX_SUFFIXES:
                self._followers.clear()
            known = self._followers[prefix] = frozenset(found)
        return known


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count
