"""The naive twin of the native automaton: derivatives of patterns by bytes (Brzozowski, 1964).

Nothing is compiled and little remembered: a mask tries each token, whether a text can go on is
found by searching. An oracle for tests, for small patterns and vocabularies.
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.constrain.matcher import MAX_FORCED_BYTES, MatcherTokenizer
from espalier.constrain.pattern import (
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
)
from espalier.errors import CapacityError, UserInputError

MAX_SEARCHED_TERMS = 1_000

# Derivatives, by their first item. Smart constructors keep those of one pattern finite.
#   ("none",) no text; ("empty",) the text ""; ("char", ranges of code points); ("rest", number of
#   bytes, ranges of what they encode)
#   ("concat", a, b); ("any", frozenset of options); ("repeat", a, low, high)
#   ("both", a, b); ("without", a, b)
_Term = tuple[Any, ...]
_Ranges = tuple[tuple[int, int], ...]
_NONE: _Term = ("none",)
_EMPTY: _Term = ("empty",)

# Characters by the number of bytes after their first, which begins with these bits. No surrogates.
_LENGTHS = [(0, 0x7F, 0, 0), (0x80, 0x7FF, 1, 0xC0), (0x800, 0xD7FF, 2, 0xE0),
            (0xE000, 0xFFFF, 2, 0xE0), (0x10000, 0x10FFFF, 3, 0xF0)]  # fmt: skip


class ReferenceMatcher:
    """A Matcher of a pattern's texts, by derivatives. Raises UserInputError for no text at all."""

    def __init__(
        self, pattern: Pattern, tokenizer: MatcherTokenizer, vocab_size: int | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = tokenizer.vocab_size if vocab_size is None else vocab_size
        self._terms: list[_Term] = [_term_of(pattern)]
        self._is_ended = [False]
        if not _is_live(self._terms[0]):
            raise UserInputError("no text matches the pattern")

    @property
    def is_complete(self) -> bool:
        """See Matcher."""
        return _is_nullable(self._terms[-1])

    @property
    def must_stop(self) -> bool:
        """See Matcher."""
        return self._is_ended[-1] or (
            self.is_complete and not any(self._is_allowed(i) for i in self._text_ids())
        )

    def mask(self) -> NDArray[np.uint32]:
        """See Matcher."""
        words = np.zeros((self._vocab_size + 31) // 32, np.uint32)
        for token_id in self.allowed_ids().tolist():
            words[token_id // 32] |= np.uint32(1 << token_id % 32)
        return words

    @property
    def state_key(self) -> None:
        """See Matcher."""
        return

    @property
    def num_allowed(self) -> int:
        """See Matcher."""
        return len(self.allowed_ids())

    def allowed_ids(self) -> NDArray[np.int32]:
        """See Matcher."""
        ids = [i for i in range(self._vocab_size) if self._is_allowed(i)]
        return np.array(ids, np.int32)

    def forced_bytes(self) -> bytes:
        """See Matcher."""
        term, forced = self._terms[-1], b""
        while not self._is_ended[-1] and not _is_nullable(term) and len(forced) < MAX_FORCED_BYTES:
            ways = [byte for byte in range(256) if _is_live(_derivative(term, byte))]
            if len(ways) != 1:
                break
            forced += bytes(ways)
            term = _derivative(term, ways[0])
        return forced

    def accept(self, token_id: int) -> None:
        """See Matcher."""
        if not self._is_allowed(token_id):
            raise UserInputError(f"the token {token_id} may not follow")
        is_end = token_id in self._tokenizer.eos_ids
        data = b"" if is_end else self._tokenizer.token_bytes(token_id)
        self._terms.append(_after(self._terms[-1], data))
        self._is_ended.append(is_end)

    def rollback(self, num_tokens: int) -> None:
        """See Matcher."""
        for _ in range(num_tokens):
            self._terms.pop()
            self._is_ended.pop()

    @property
    def num_accepted(self) -> int:
        """Tokens accepted and not taken back."""
        return len(self._terms) - 1

    def can_end_in_tokens(self) -> bool:
        """Whether tokens can lead from here to a text of the pattern. Raises CapacityError."""
        pieces = dict.fromkeys(self._tokenizer.token_bytes(i) for i in self._text_ids())
        return _can_reach(self._terms[-1], tuple(piece for piece in pieces if piece))

    def _text_ids(self) -> list[int]:
        tokenizer = self._tokenizer
        return [
            i
            for i in range(min(tokenizer.vocab_size, self._vocab_size))
            if i not in tokenizer.eos_ids and not tokenizer.is_control(i)
        ]

    def _is_allowed(self, token_id: int) -> bool:
        if self._is_ended[-1] or token_id >= min(self._vocab_size, self._tokenizer.vocab_size):
            return False
        if token_id in self._tokenizer.eos_ids:
            return self.is_complete
        data = self._tokenizer.token_bytes(token_id)
        if self._tokenizer.is_control(token_id) or not data:
            return False
        return _is_live(_after(self._terms[-1], data))


def matches(pattern: Pattern, data: bytes) -> bool:
    """Whether a pattern has the text with these bytes."""
    return _is_nullable(_after(_term_of(pattern), data))


def can_start(pattern: Pattern, data: bytes) -> bool:
    """Whether a pattern has a text that begins with these bytes."""
    return _is_live(_after(_term_of(pattern), data))


def _term_of(pattern: Pattern) -> _Term:
    if isinstance(pattern, Literal):
        term = _EMPTY
        for character in reversed(pattern.text):
            term = _concat(_char(((ord(character), ord(character)),)), term)
        return term
    if isinstance(pattern, CharClass):
        return _char(pattern.ranges)
    if isinstance(pattern, Concat):
        term = _EMPTY
        for part in reversed(pattern.parts):
            term = _concat(_term_of(part), term)
        return term
    if isinstance(pattern, Alternation):
        return _any([_term_of(option) for option in pattern.options])
    if isinstance(pattern, Repeat):
        return _repeat(_term_of(pattern.inner), pattern.low, pattern.high)
    if isinstance(pattern, Both):
        return _both(_term_of(pattern.left), _term_of(pattern.right))
    return _without(_term_of(pattern.left), _term_of(pattern.right))


def _after(term: _Term, data: bytes) -> _Term:
    for byte in data:
        term = _derivative(term, byte)
    return term


@lru_cache(maxsize=200_000)
def _derivative(term: _Term, byte: int) -> _Term:
    """What must follow a byte."""
    kind = term[0]
    if kind in ("none", "empty"):
        return _NONE
    if kind == "char":
        return _char_after(term[1], byte)
    if kind == "rest":
        return _rest_after(term[1], term[2], byte)
    if kind == "concat":
        first = _concat(_derivative(term[1], byte), term[2])
        return _any([first, _derivative(term[2], byte)]) if _is_nullable(term[1]) else first
    if kind == "any":
        return _any([_derivative(option, byte) for option in term[1]])
    if kind == "repeat":
        _, inner, low, high = term
        rest = _repeat(inner, max(low - 1, 0), None if high is None else high - 1)
        return _concat(_derivative(inner, byte), rest)
    combine = _both if kind == "both" else _without
    return combine(_derivative(term[1], byte), _derivative(term[2], byte))


def _is_nullable(term: _Term) -> bool:
    kind = term[0]
    if kind == "concat":
        return _is_nullable(term[1]) and _is_nullable(term[2])
    if kind == "any":
        return any(_is_nullable(option) for option in term[1])
    if kind == "repeat":
        return term[2] == 0 or _is_nullable(term[1])
    if kind == "both":
        return _is_nullable(term[1]) and _is_nullable(term[2])
    if kind == "without":
        return _is_nullable(term[1]) and not _is_nullable(term[2])
    return bool(kind == "empty")


@lru_cache(maxsize=200_000)
def _is_live(term: _Term) -> bool:
    """Whether some text leads from here to a match. Raises CapacityError where that is far."""
    if not _has_sets(term):
        return term != _NONE
    return _can_reach(term, tuple(bytes([byte]) for byte in range(256)))


def _can_reach(term: _Term, pieces: tuple[bytes, ...]) -> bool:
    """Whether pieces in a row lead to a match. Raises CapacityError where that is far."""
    seen, waiting = {term}, deque([term])
    while waiting:
        reached = waiting.popleft()
        if _is_nullable(reached):
            return True
        for piece in pieces:
            following = _after(reached, piece)
            if following not in seen:
                seen.add(following)
                waiting.append(following)
        if len(seen) > MAX_SEARCHED_TERMS:
            raise CapacityError(f"a search met more than {MAX_SEARCHED_TERMS} derivatives")
    return False


@lru_cache(maxsize=200_000)
def _has_sets(term: _Term) -> bool:
    """An intersection or difference is in it; without one, what has no text is ("none",)."""
    if term[0] == "any":
        return any(_has_sets(option) for option in term[1])
    if term[0] in ("concat", "repeat"):
        return any(_has_sets(part) for part in term[1:] if isinstance(part, tuple))
    return term[0] in ("both", "without")


def _char(ranges: _Ranges) -> _Term:
    """One character of the ranges."""
    known = tuple(part for first, last, *_ in _LENGTHS for part in _clipped(ranges, first, last))
    return ("char", known) if known else _NONE


def _char_after(ranges: _Ranges, byte: int) -> _Term:
    """What must follow the first byte of a character of the ranges."""
    for first, last, num_more, lead in _LENGTHS:
        start = byte - lead << 6 * num_more
        end = start + (1 << 6 * num_more) - 1
        left = _clipped(ranges, max(first, start), min(last, end))
        if left:
            return _rest(num_more, tuple((low - start, high - start) for low, high in left))
    return _NONE


def _rest_after(num_bytes: int, ranges: _Ranges, byte: int) -> _Term:
    if not 0x80 <= byte <= 0xBF:
        return _NONE
    start = byte - 0x80 << 6 * (num_bytes - 1)
    end = start + (1 << 6 * (num_bytes - 1)) - 1
    left = _clipped(ranges, start, end)
    return _rest(num_bytes - 1, tuple((low - start, high - start) for low, high in left))


def _rest(num_bytes: int, ranges: _Ranges) -> _Term:
    """The last bytes of a character: numbers of 6 bits a byte."""
    if not ranges:
        return _NONE
    return ("rest", num_bytes, ranges) if num_bytes else _EMPTY


def _clipped(ranges: _Ranges, first: int, last: int) -> _Ranges:
    clipped = ((max(low, first), min(high, last)) for low, high in ranges)
    return tuple((low, high) for low, high in clipped if low <= high)


def _concat(first: _Term, second: _Term) -> _Term:
    if _NONE in (first, second):
        return _NONE
    if first == _EMPTY:
        return second
    if second == _EMPTY:
        return first
    if first[0] == "concat":
        return ("concat", first[1], _concat(first[2], second))
    return ("concat", first, second)


def _any(options: list[_Term]) -> _Term:
    flat: set[_Term] = set()
    for option in options:
        flat |= option[1] if option[0] == "any" else {option}
    flat.discard(_NONE)
    if not flat:
        return _NONE
    return flat.pop() if len(flat) == 1 else ("any", frozenset(flat))


def _repeat(inner: _Term, low: int, high: int | None) -> _Term:
    if high is not None and high < low:
        return _NONE
    if high == 0 or inner == _EMPTY or (inner == _NONE and low == 0):
        return _EMPTY
    return _NONE if inner == _NONE else ("repeat", inner, low, high)


def _both(left: _Term, right: _Term) -> _Term:
    if _NONE in (left, right):
        return _NONE
    return left if left == right else ("both", left, right)


def _without(left: _Term, right: _Term) -> _Term:
    if left in (_NONE, right):
        return _NONE
    return left if right == _NONE else ("without", left, right)
