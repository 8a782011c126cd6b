"""Grammars of the llguidance library: one source compiled within limits, shared by its matchers.

Owns the limits of compiling and matching. Knows the library's dialect of Lark and no other syntax.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from llguidance import LLMatcher, LLParserLimits

from espalier.constrain.llguidance_failure import failure
from espalier.constrain.llguidance_matcher import LlguidanceMatcher
from espalier.constrain.llguidance_vocabulary import LibraryVocabulary, library_vocabularies
from espalier.constrain.matcher import MatcherTokenizer
from espalier.errors import CapacityError, UserInputError

COMPILE_TIMEOUT_S = 10.0

# Fuel counts steps of the library's own regex engine: about 20 ms to compile and 15 ms per mask.
# Items are those of its Earley parser, about 20,000 a millisecond. A lexer state takes 1 to 2 kB.
# The time to compile grows with the square of the symbols: 30,000 take about a second.
_LIMITS = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "step_max_items": 50_000,
    "max_lexer_states": 20_000,
    "max_grammar_size": 30_000,
    "verbose_errors": False,
}

# The library recurses along chains of rules and would end the process where the stack ends.
_STACK_BYTES = 128 << 20
_MAX_THREADS = 4

# Without it a mask would leave out tokens wherever the next bytes are decided.
_NO_FORCING = '%llguidance {"no_forcing": true}'

# Measured with SmolLM2's vocabulary: compiled JSON schemas and lists of words take 90 to 140 bytes
# for each character of their source, and what the lexer finds in thousands of masks 70 to 500 kB.
_BYTES_PER_CHARACTER = 130
_BYTES_AT_LEAST = 256 << 10


class LlguidanceGrammar:
    """A Grammar from Lark source in the library's dialect. Holds no reference to the tokenizer.

    `vocab_size` is the width of the model's logits where it exceeds the tokenizer's vocabulary.
    `what` names the form in messages, such as "The grammar"; `hint` goes after them.
    Raises UserInputError for a source that is not understood, that no text matches or that exceeds
    a limit, CapacityError where compiling takes too long.
    """

    def __init__(
        self,
        lark: str,
        tokenizer: MatcherTokenizer,
        vocab_size: int | None = None,
        *,
        what: str,
        hint: str = "",
    ) -> None:
        vocabulary = library_vocabularies.of(tokenizer)
        self._vocab_size = tokenizer.vocab_size if vocab_size is None else vocab_size
        self._eos_ids = vocabulary.eos_ids
        self._compilation = _Compilation(lark, vocabulary, what, hint)
        self._compiled = self._compilation.run()
        self._generation = 0  # of the lexer, which copies share
        self._num_bytes = _BYTES_AT_LEAST + _BYTES_PER_CHARACTER * len(lark)
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """See Grammar; the library does not tell, so it is estimated from the source."""
        return self._num_bytes

    def matcher(self) -> LlguidanceMatcher:
        """See Grammar."""
        return LlguidanceMatcher(self, self._vocab_size, self._eos_ids)

    def start(self) -> tuple[LLMatcher, int]:
        """See MatcherSource."""
        with self._lock:
            return self._compiled.deep_copy(), self._generation

    def renew(self, generation: int) -> None:
        """See MatcherSource."""
        with self._lock:
            if generation == self._generation:
                self._compiled = self._compilation.run()
                self._generation += 1


class _Compilation:
    """Compiles a source, in a thread with a stack of its own that nobody waits for too long."""

    def __init__(self, lark: str, vocabulary: LibraryVocabulary, what: str, hint: str) -> None:
        self._lark = lark
        self._vocabulary = vocabulary
        self._what = what
        self._hint = hint

    def run(self) -> LLMatcher:
        what = self._what
        if not _slots.acquire(timeout=COMPILE_TIMEOUT_S):
            raise CapacityError(
                f"{what} cannot be compiled now: {_MAX_THREADS} others are being compiled and "
                f"none ended in {COMPILE_TIMEOUT_S:g} s. Try again."
            )
        work = _Work(self._lark, self._vocabulary)
        thread = _start_with_stack(work.run)
        thread.join(COMPILE_TIMEOUT_S)
        if thread.is_alive():
            raise CapacityError(
                f"{what} took more than {COMPILE_TIMEOUT_S:g} s to compile. Use a simpler one."
            )
        if work.raised is not None:
            raise work.raised
        assert work.compiled is not None
        reason = failure(work.compiled)
        if reason:
            raise UserInputError(f"{what} cannot be used: {reason}. {self._hint}".rstrip())
        return work.compiled


class _Work:
    """What the thread of a compilation does, whether or not somebody still waits for it."""

    def __init__(self, lark: str, vocabulary: LibraryVocabulary) -> None:
        self._lark = lark
        self._vocabulary = vocabulary
        self.compiled: LLMatcher | None = None
        self.raised: BaseException | None = None

    def run(self) -> None:
        try:
            compiled = LLMatcher(
                self._vocabulary.tokenizer,
                LLMatcher.grammar_from_lark(f"{self._lark}\n{_NO_FORCING}\n"),
                log_level=0,
                limits=LLParserLimits(**_LIMITS),
            )
            compiled.compute_bitmask()  # finds out whether anything matches
            self.compiled = compiled
        except BaseException as error:  # it is raised where it is waited for
            self.raised = error
        finally:
            _slots.release()


def _start_with_stack(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, name="espalier-compile", daemon=True)
    with _stack_lock:
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return thread


_slots = threading.BoundedSemaphore(_MAX_THREADS)
_stack_lock = threading.Lock()
