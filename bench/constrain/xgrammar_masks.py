"""Masks of xgrammar: a new matcher for each text, filling a torch tensor."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import xgrammar
from bench.constrain.mask_adapter import serve


class _Matcher:
    def __init__(self, matcher: Any, words: Any) -> None:
        self._matcher = matcher
        self._words = words

    def fill(self) -> None:
        self._matcher.fill_next_token_bitmask(self._words)

    def allows(self, token_id: int) -> bool:
        return bool(int(self._words[0, token_id // 32]) >> token_id % 32 & 1)

    def accept(self, token_id: int) -> None:
        if not self._matcher.accept_token(token_id):
            raise ValueError("the mask allowed what the matcher does not")


class Xgrammar:
    """JSON Schema's meaning (`strict_mode` off), no cache: each schema comes once."""

    def start(self, vocabulary: dict[str, Any]) -> dict[str, Any]:
        tokenizer = xgrammar.TokenizerInfo(
            [bytes.fromhex(piece) for piece in vocabulary["pieces"]],
            vocab_size=vocabulary["vocab_size"],
            stop_token_ids=[vocabulary["eos_id"]],
        )
        self._compiler = xgrammar.GrammarCompiler(tokenizer, max_threads=1, cache_enabled=False)
        self._words = xgrammar.allocate_token_bitmask(1, vocabulary["vocab_size"])
        return {"version": version("xgrammar")}

    def compile(self, schema: str) -> Any:
        return self._compiler.compile_json_schema(
            schema, any_whitespace=False, separators=(",", ":"), strict_mode=False
        )

    def matcher(self, grammar: Any) -> _Matcher:
        return _Matcher(xgrammar.GrammarMatcher(grammar), self._words)


if __name__ == "__main__":
    serve(Xgrammar())
