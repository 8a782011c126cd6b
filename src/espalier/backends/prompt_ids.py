"""From the segments of a prompt to token ids.

Generated tokens stay as they were generated. Constant segments that stand together are tokenised
together, so that a token may cross from one into the next; nothing crosses from a constant into
generated tokens or back. A BOS comes at the very start only. It must not know requests or engines.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from espalier.errors import PromptError
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.types import Prompt, TextSegment, TokenSegment

Pieces = tuple[tuple[str, bool], ...]  # (text, may spell control tokens)
Ids = tuple[int, ...]
_MAX_CACHED_CHARACTERS = 8 << 20


@dataclass(frozen=True, slots=True)
class PromptIds:
    """A prompt's tokens: `head` is fixed, `tail` are those of its last run of constants.

    `tail_pieces` are the texts of that run; more text after them may change `tail`, never `head`.
    """

    head: Ids
    tail: Ids
    tail_pieces: Pieces

    @property
    def all(self) -> Ids:
        """All tokens in order."""
        return self.head + self.tail


class PromptEncoder:
    """Tokenises prompts; remembers runs of constants, as each call of a program repeats them.

    Safe to use from several threads. With `max_tokens`, text that cannot fit into that many tokens
    is refused before the time to tokenise it is spent.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._longest_token: int | None = None  # in bytes; found when a text needs it
        self._cache: OrderedDict[tuple[Pieces, bool], Ids] = OrderedDict()
        self._num_cached_characters = 0
        self._lock = threading.Lock()

    def encode(self, prompt: Prompt) -> PromptIds:
        """Tokens of a prompt; none for an empty one. Raises PromptError for text that is none."""
        head: list[int] = []
        pieces: list[tuple[str, bool]] = []
        for segment in prompt:
            if isinstance(segment, TextSegment):
                pieces.append((segment.text, segment.allow_special))
            else:
                self._close_run(head, pieces)
                head += segment.token_ids
        run = tuple(pieces)
        is_start = not any(isinstance(segment, TokenSegment) for segment in prompt)
        tail = self.encode_run(run, at_start=is_start) if run else ()
        return PromptIds(tuple(head), tail, run)

    def _close_run(self, head: list[int], pieces: list[tuple[str, bool]]) -> None:
        if pieces or not head:
            head += self.encode_run(tuple(pieces), at_start=not head)
        pieces.clear()

    def encode_run(self, pieces: Pieces, *, at_start: bool) -> Ids:
        """Tokens of a run of constants; with the model's BOS where it is the start of a prompt."""
        key = (pieces, at_start)
        with self._lock:
            known = self._cache.get(key)
            if known is not None:
                self._cache.move_to_end(key)
                return known
        self._check_size(sum(len(text) for text, _ in pieces))
        ids = self._tokenised(pieces, at_start)
        with self._lock:
            if key not in self._cache:
                self._cache[key] = ids
                self._num_cached_characters += _size(pieces)
            while self._num_cached_characters > _MAX_CACHED_CHARACTERS:
                (old, _), _ = self._cache.popitem(last=False)
                self._num_cached_characters -= _size(old)
        return ids

    def _tokenised(self, pieces: Pieces, at_start: bool) -> Ids:
        return tuple(self._tokenizer.encode_pieces(pieces, at_start=at_start))

    def _check_size(self, num_characters: int) -> None:
        if self._max_tokens is None or num_characters <= self._max_tokens:
            return
        if self._longest_token is None:
            tokenizer = self._tokenizer
            ids = range(tokenizer.vocab_size)
            self._longest_token = max(len(tokenizer.token_bytes(token_id)) for token_id in ids)
        if num_characters > self._max_tokens * self._longest_token:
            raise PromptError(
                f"the prompt has {num_characters} characters; the context holds {self._max_tokens} "
                f"tokens of at most {self._longest_token} bytes each. Shorten it."
            )


def _size(pieces: Pieces) -> int:
    return 64 + sum(len(text) for text, _ in pieces)
