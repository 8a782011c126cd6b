"""Constraints of one engine: compiled grammars and guides. Any thread may use it.

It owns the canonicaliser of the engine's tokenizer; the compile cache is the compiler's.
"""

from __future__ import annotations

import threading

from espalier.constrain.canonical import Canonicaliser, CanonicalTokenizer
from espalier.constrain.compiler import CompilerStatistics, compiler_of
from espalier.constrain.guide import Guide
from espalier.constraint import Constraint


class Constraints:
    """Makes guides for outputs of a model with `vocab_size` logits."""

    def __init__(self, tokenizer: CanonicalTokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._compiler = compiler_of(tokenizer, vocab_size)
        self._canonicaliser: Canonicaliser | None = None
        self._lock = threading.Lock()

    def is_ready(self, constraint: Constraint) -> bool:
        """True where a guide for it takes no time to make."""
        return self._canonicaliser is not None and self._compiler.cached(constraint) is not None

    def prepare(self, constraint: Constraint) -> None:
        """Compiles a constraint, which may take a while; call it where nobody waits.

        Raises UserInputError or CapacityError for one that cannot be enforced.
        """
        self._compiler.compile(constraint)
        self._canonical()

    def guide(self, constraint: Constraint, max_tokens: int, is_canonical: bool) -> Guide:
        """A guide at the start of an output of at most `max_tokens`. Raises as `prepare`."""
        grammar = self._compiler.compile(constraint)
        return Guide(grammar.matcher(), self._canonical() if is_canonical else None, max_tokens)

    def statistics(self) -> CompilerStatistics:
        """What was compiled, and found compiled."""
        return self._compiler.statistics()

    def _canonical(self) -> Canonicaliser:
        with self._lock:
            if self._canonicaliser is None:
                self._canonicaliser = Canonicaliser(self._tokenizer)
            return self._canonicaliser
