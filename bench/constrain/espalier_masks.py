"""Masks of Espalier: its compiler's grammars, a matcher for each text."""

from __future__ import annotations

from typing import Any

import numpy as np
from bench.constrain.mask_adapter import serve

import espalier
from espalier.constrain.compiler import GrammarCompiler
from espalier.constrain.matcher import Grammar
from espalier.constrain.matcher import Matcher as EspalierMatcher
from espalier.constraint import Constraint, ConstraintKind


class _Tokenizer:
    def __init__(self, vocabulary: dict[str, Any]) -> None:
        self._pieces = [bytes.fromhex(piece) for piece in vocabulary["pieces"]]
        self._special = frozenset(vocabulary["special"])
        self.vocab_size = len(self._pieces)
        self.eos_ids = frozenset({vocabulary["eos_id"]})

    def token_bytes(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def is_control(self, token_id: int) -> bool:
        return token_id in self._special


class _Matcher:
    def __init__(self, matcher: EspalierMatcher) -> None:
        self._matcher = matcher
        self.accept = matcher.accept

    def fill(self) -> None:
        self._words = self._matcher.mask()

    def allows(self, token_id: int) -> bool:
        return bool(self._words[token_id // 32] >> np.uint32(token_id % 32) & np.uint32(1))


class Espalier:
    """The compiler that the engine uses."""

    def start(self, vocabulary: dict[str, Any]) -> dict[str, Any]:
        self._tokenizer = _Tokenizer(vocabulary)
        self._compiler = GrammarCompiler(self._tokenizer, vocabulary["vocab_size"])
        for kind, text in ((ConstraintKind.REGEX, "a"), (ConstraintKind.LARK, 'start: "a"')):
            self._compiler.compile(Constraint(kind, text))  # reads the vocabulary
        return {"version": espalier.__version__}

    def compile(self, schema: str) -> Grammar:
        return self._compiler.compile(Constraint(ConstraintKind.JSON_SCHEMA, schema))

    def matcher(self, grammar: Grammar) -> _Matcher:
        return _Matcher(grammar.matcher())


if __name__ == "__main__":
    serve(Espalier())
