"""Forms of output to grammars: one entry for every kind, compiled once and shared.

Owns the cache of grammars of one tokenizer, its bounds and its figures. Which module compiles a
kind is in `_build`; how is theirs.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from espalier.constrain.constraint_grammar import constraint_grammar
from espalier.constrain.matcher import Grammar, MatcherTokenizer
from espalier.constraint import Constraint
from espalier.errors import CapacityError, UserInputError

MAX_CONSTRAINT_BYTES = 1 << 20
MAX_CACHED_GRAMMARS = 256  # per compiler
MAX_CACHED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class CompilerStatistics:
    """What a compiler has done so far and what it holds now.

    Attributes:
        num_hits: grammars that were found compiled, or that another thread was compiling.
        num_misses: compilations, `num_failures` of which ended in an error.
        compile_s: seconds of all compilations together.
        num_grammars: grammars in the cache.
        num_bytes: their memory, about.
    """

    num_hits: int
    num_misses: int
    num_failures: int
    compile_s: float
    num_grammars: int
    num_bytes: int


class GrammarCompiler:
    """Compiles and caches the grammars of one model. Thread-safe.

    Holds the tokenizer weakly: it must live while `compile` runs. `vocab_size` is the width of the
    model's logits.
    """

    def __init__(
        self,
        tokenizer: MatcherTokenizer,
        vocab_size: int,
        *,
        max_grammars: int = MAX_CACHED_GRAMMARS,
        max_bytes: int = MAX_CACHED_BYTES,
    ) -> None:
        self._tokenizer = weakref.ref(tokenizer)
        self._vocab_size = vocab_size
        self._max_grammars = max_grammars
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._grammars: OrderedDict[Constraint, Grammar] = OrderedDict()  # least recent first
        self._pending: dict[Constraint, Future[Grammar]] = {}
        self._num_hits = self._num_misses = self._num_failures = 0
        self._compile_s = 0.0

    def cached(self, constraint: Constraint) -> Grammar | None:
        """The grammar if it is compiled already; never waits for a compilation."""
        with self._lock:
            return self._find(constraint)

    def compile(self, constraint: Constraint) -> Grammar:
        """The grammar of a constraint, compiled unless it is there.

        A constraint that another thread is compiling is waited for; other ones are compiled
        meanwhile. Errors are not cached. Raises UserInputError for a constraint that is not
        understood, not supported or that no text meets, CapacityError for one beyond a limit.
        """
        with self._lock:
            grammar = self._find(constraint)
            if grammar is not None:
                return grammar
            pending = self._pending.get(constraint)
            if pending is not None:
                self._num_hits += 1
            else:
                self._num_misses += 1
                mine = self._pending[constraint] = Future()
        if pending is not None:
            return pending.result()
        return self._compile(constraint, mine)

    def statistics(self) -> CompilerStatistics:
        """Figures since the compiler was made."""
        with self._lock:
            return CompilerStatistics(
                num_hits=self._num_hits,
                num_misses=self._num_misses,
                num_failures=self._num_failures,
                compile_s=self._compile_s,
                num_grammars=len(self._grammars),
                num_bytes=self._total_bytes(),
            )

    def _find(self, constraint: Constraint) -> Grammar | None:
        grammar = self._grammars.get(constraint)
        if grammar is not None:
            self._grammars.move_to_end(constraint)
            self._num_hits += 1
        return grammar

    def _compile(self, constraint: Constraint, mine: Future[Grammar]) -> Grammar:
        start = time.perf_counter()
        try:
            grammar = self._built(constraint)
        except BaseException as error:
            with self._lock:
                self._compile_s += time.perf_counter() - start
                self._num_failures += 1
                del self._pending[constraint]
            mine.set_exception(error)
            raise
        with self._lock:
            self._compile_s += time.perf_counter() - start
            self._grammars[constraint] = grammar
            del self._pending[constraint]
            self._evict()
        mine.set_result(grammar)
        return grammar

    def _built(self, constraint: Constraint) -> Grammar:
        _check_size(constraint)
        tokenizer = self._tokenizer()
        assert tokenizer is not None, "the tokenizer must outlive its compiler's calls"
        return constraint_grammar(constraint, tokenizer, self._vocab_size)

    def _evict(self) -> None:
        """Drops the grammars that were used least recently; the newest one stays."""
        while len(self._grammars) > 1 and (
            len(self._grammars) > self._max_grammars or self._total_bytes() > self._max_bytes
        ):
            self._grammars.popitem(last=False)

    def _total_bytes(self) -> int:
        return sum(grammar.num_bytes for grammar in self._grammars.values())


def compiler_of(tokenizer: MatcherTokenizer, vocab_size: int) -> GrammarCompiler:
    """The compiler of a tokenizer and a width of logits; it lives as long as the tokenizer."""
    with _compilers_lock:
        by_size = _compilers.setdefault(tokenizer, {})
        compiler = by_size.get(vocab_size)
        if compiler is None:
            compiler = by_size[vocab_size] = GrammarCompiler(tokenizer, vocab_size)
        return compiler


_compilers: WeakKeyDictionary[MatcherTokenizer, dict[int, GrammarCompiler]] = WeakKeyDictionary()
_compilers_lock = threading.Lock()


def _check_size(constraint: Constraint) -> None:
    try:
        num_bytes = len(constraint.text.encode())
    except UnicodeEncodeError:
        raise UserInputError(
            f"The {constraint.kind.value} holds a lone surrogate; Unicode text is allowed."
        ) from None
    if num_bytes > MAX_CONSTRAINT_BYTES:
        raise CapacityError(
            f"The {constraint.kind.value} has {num_bytes} bytes; at most {MAX_CONSTRAINT_BYTES} "
            "are allowed."
        )
