"""Masks of llguidance: its matcher, reset for each text, filling a buffer by address."""

from __future__ import annotations

import json
from typing import Any

import llguidance
import numpy as np
from bench.constrain.mask_adapter import serve


class _Vocabulary:
    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, vocabulary: dict[str, Any]) -> None:
        self.tokens = [bytes.fromhex(piece) for piece in vocabulary["pieces"]]
        self.special_token_ids = vocabulary["special"]
        self.eos_token_id = vocabulary["eos_id"]

    def __call__(self, text: str) -> list[int]:
        raise NotImplementedError("tokens are not forced here")


class _Matcher:
    def __init__(self, matcher: Any, words: Any) -> None:
        self._matcher = matcher
        self._words = words
        self._address, self._num_bytes = words.ctypes.data, words.nbytes

    def fill(self) -> None:
        self._matcher.unsafe_compute_mask_ptr(self._address, self._num_bytes)

    def allows(self, token_id: int) -> bool:
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
        return bool(self._words[token_id // 32] >> np.uint32(token_id % 32) & np.uint32(1))

    def accept(self, token_id: int) -> None:
        self._matcher.consume_token(token_id)


class Llguidance:
    """`no_forcing`: masks hold every token that fits, as those of the other libraries do."""

    def start(self, vocabulary: dict[str, Any]) -> dict[str, Any]:
        self._tokenizer = llguidance.LLTokenizer(_Vocabulary(vocabulary))
        self._words = np.zeros((vocabulary["vocab_size"] + 31) // 32, np.uint32)
        return {"version": llguidance.get_version().split()[0]}

    def compile(self, schema: str) -> Any:
        given = json.loads(schema)
        if given is True:
            given = {}
        if not isinstance(given, dict):
            raise ValueError("no object")
        given["x-guidance"] = {"whitespace_flexible": False}
        grammar = llguidance.LLMatcher.grammar_from_lark(
            f'%llguidance {{"no_forcing": true}}\nstart: %json {json.dumps(given)}'
        )
        matcher = llguidance.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def matcher(self, grammar: Any) -> _Matcher:
        grammar.reset()
        return _Matcher(grammar, self._words)


if __name__ == "__main__":
    serve(Llguidance())
