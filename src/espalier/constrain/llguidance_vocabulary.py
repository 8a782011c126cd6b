"""A model's vocabulary in the form that the llguidance library reads, made once per tokenizer.

Knows no grammar. Tokenizers are referenced weakly.
"""

from __future__ import annotations

from llguidance import LLTokenizer

from espalier.constrain.matcher import MatcherTokenizer
from espalier.constrain.per_tokenizer import PerTokenizer


class LibraryVocabulary:
    """The library's tokenizer of one model, and its ends of text. Immutable."""

    def __init__(self, tokenizer: MatcherTokenizer) -> None:
        self.eos_ids = frozenset(tokenizer.eos_ids)
        wrapper = _Wrapper(tokenizer, self.eos_ids)
        self.tokenizer = LLTokenizer(wrapper, eos_token=sorted(self.eos_ids) or None)


class _Wrapper:
    """What the library asks of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: MatcherTokenizer, eos_ids: frozenset[int]) -> None:
        ids = range(tokenizer.vocab_size)
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in ids]
        self.special_token_ids = [
            token_id for token_id in ids if token_id in eos_ids or tokenizer.is_control(token_id)
        ]
        self.eos_token_id = min(eos_ids, default=None)  # None: the library adds one of its own

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("matchers with no_forcing tokenise nothing")


library_vocabularies = PerTokenizer(LibraryVocabulary)
