"""Control tokens that take part in a form as the text that they spell.

A form is a set of texts, and control tokens are no text: no mask allows them. Where a form needs
one (the token that opens a tool call, say), the form is compiled for a vocabulary in which this
token is ordinary text. Its answers depend on bytes alone as before.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from espalier.constrain.matcher import MatcherTokenizer
from espalier.constrain.per_tokenizer import PerTokenizer


class ControlText:
    """A MatcherTokenizer like another one, but that some control tokens are text.

    Holds no reference to the other one.
    """

    def __init__(self, tokenizer: MatcherTokenizer, text_ids: Collection[int]) -> None:
        ids = range(tokenizer.vocab_size)
        self.vocab_size = tokenizer.vocab_size
        self._eos_ids = frozenset(tokenizer.eos_ids)
        self._pieces = [tokenizer.token_bytes(token_id) for token_id in ids]
        self._controls = {i for i in ids if tokenizer.is_control(i)} - set(text_ids)

    @property
    def eos_ids(self) -> frozenset[int]:
        """See MatcherTokenizer."""
        return self._eos_ids

    def token_bytes(self, token_id: int) -> bytes:
        """See MatcherTokenizer."""
        return self._pieces[token_id]

    def is_control(self, token_id: int) -> bool:
        """See MatcherTokenizer."""
        return token_id in self._controls


def with_control_text(tokenizer: MatcherTokenizer, text: str) -> MatcherTokenizer:
    """A tokenizer whose control token that spells `text`, if there is one, is text.

    The same object for the same arguments, as long as the tokenizer lives. Thread-safe.
    """
    return _control_tokens.of(tokenizer).with_text(tokenizer, text)


class _ControlTokens:
    """The control tokens of one tokenizer by what they spell; ends of text are none."""

    def __init__(self, tokenizer: MatcherTokenizer) -> None:
        self._ids: dict[bytes, list[int]] = {}
        for token_id in range(tokenizer.vocab_size):
            if tokenizer.is_control(token_id) and token_id not in tokenizer.eos_ids:
                self._ids.setdefault(tokenizer.token_bytes(token_id), []).append(token_id)
        self._made: dict[bytes, ControlText] = {}
        self._lock = threading.Lock()

    def with_text(self, tokenizer: MatcherTokenizer, text: str) -> MatcherTokenizer:
        data = text.encode()
        if data not in self._ids:
            return tokenizer
        with self._lock:
            if data not in self._made:
                self._made[data] = ControlText(tokenizer, self._ids[data])
            return self._made[data]


_control_tokens = PerTokenizer(_ControlTokens)
