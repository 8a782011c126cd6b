"""Matchers from regular expressions, by the llguidance library.

Owns the compile cache (per tokenizer, which is referenced weakly) and the limits of compilation and
matching. Everything that is llguidance's stays in this module.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from weakref import WeakKeyDictionary

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, regex_to_lark
from numpy.typing import NDArray

from espalier import _native
from espalier.constrain.matcher import MAX_FORCED_BYTES, MatcherTokenizer
from espalier.errors import CapacityError, UserInputError

MAX_REGEX_CHARS = 16_384
MAX_CACHED_REGEXES = 64  # per tokenizer

# Fuel counts steps of the library's own regex engine: about 20 ms to compile and 15 ms per mask.
# A lexer state takes 1 to 2 kB.
_LIMITS = {
    "initial_lexer_fuel": 1_000_000,
    "step_lexer_fuel": 200_000,
    "max_lexer_states": 50_000,
    "verbose_errors": False,
}

_DEAD_END = "no text made of this model's tokens matches it"


class RegexMatcher:
    """A Matcher of the texts that a regular expression matches as a whole."""

    def __init__(self, compiled: LLMatcher, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._matcher = compiled
        self._vocab_size = vocab_size
        self._ends = np.zeros((vocab_size + 31) // 32, np.uint32)  # the ends of text as a mask
        for token_id in eos_ids:
            self._ends[token_id // 32] |= np.uint32(1 << token_id % 32)
        self._mask: NDArray[np.uint32] | None = None  # of the present state, once computed

    @property
    def is_complete(self) -> bool:
        """See Matcher."""
        return bool(self._matcher.is_accepting())

    @property
    def must_stop(self) -> bool:
        """See Matcher."""
        if self._matcher.is_stopped():
            return not self._matcher.is_error()
        # The library tells late where nothing can follow, so the mask is asked.
        return self.is_complete and np.array_equal(self.mask(), self._ends)

    def mask(self) -> NDArray[np.uint32]:
        """See Matcher."""
        if self._mask is None:
            words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
            self._check()
            self._mask = self._fitted(words)
        return self._mask

    @property
    def num_allowed(self) -> int:
        """See Matcher."""
        return _native.count_allowed(self.mask())

    def allowed_ids(self) -> NDArray[np.int32]:
        """See Matcher."""
        return _native.allowed_ids(self.mask())

    def forced_bytes(self) -> bytes:
        """See Matcher."""
        forced = bytes(self._matcher.compute_ff_bytes())
        self._check()
        return forced[:MAX_FORCED_BYTES]

    def accept(self, token_id: int) -> None:
        """See Matcher."""
        # Consuming a wrong token would leave the library's matcher broken for good.
        if self._matcher.validate_tokens([token_id]) != 1:
            self._check()
            raise UserInputError(
                f"The token {token_id} may not follow here: the form that the output must have "
                "excludes it. Only tokens that the mask allows can be accepted."
            )
        self._mask = None
        self._matcher.consume_token(token_id)
        self._check()

    def rollback(self, num_tokens: int) -> None:
        """See Matcher."""
        self._mask = None
        self._matcher.rollback(num_tokens)
        self._check()

    def _fitted(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """A mask of the library at the width of the model's logits.

        The library's vocabulary is narrower where the logits are padded, and wider by an end of
        text of its own where the tokenizer has none.
        """
        num_words = len(self._ends)
        if len(words) == num_words and self._ends.any():
            return words
        fitted = np.zeros(num_words, np.uint32)
        count = min(num_words, len(words))
        fitted[:count] = words[:count]
        if self._vocab_size % 32:
            fitted[-1] &= np.uint32((1 << self._vocab_size % 32) - 1)
        return fitted

    def _check(self) -> None:
        reason = _failure(self._matcher)
        if reason == _DEAD_END:
            raise UserInputError(
                f"The output cannot go on in the form that it must have: {reason}."
            )
        if reason:
            raise CapacityError(
                f"Matching the output's form stopped at a limit: {reason}. "
                "Use a simpler regular expression."
            )


def regex_matcher(
    pattern: str, tokenizer: MatcherTokenizer, vocab_size: int | None = None
) -> RegexMatcher:
    """A matcher at the start of a text that `pattern` must match as a whole.

    The syntax is that of Rust's regex crate, near Python's: no look-around, no back-references, no
    word boundaries. `\\d`, `\\w` and `\\s` mean Unicode's classes, as in Python. `vocab_size` is
    the width of the model's logits where it exceeds the tokenizer's vocabulary. Safe to call from
    several threads. Raises UserInputError for a pattern that is too long, not understood, beyond
    the limits, or matched by no text.
    """
    compiler = _compiler_of(tokenizer)
    size = tokenizer.vocab_size if vocab_size is None else vocab_size
    return RegexMatcher(compiler.compile(pattern), size, compiler.eos_ids)


class _Compiler:
    """Compiled patterns of one tokenizer. Holds no reference to the tokenizer."""

    def __init__(self, tokenizer: MatcherTokenizer) -> None:
        self.eos_ids = frozenset(tokenizer.eos_ids)
        vocabulary = _LibraryVocabulary(tokenizer, self.eos_ids)
        self._tokenizer = LLTokenizer(vocabulary, eos_token=sorted(self.eos_ids) or None)
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    def compile(self, pattern: str) -> LLMatcher:
        """A fresh copy of the pattern's matcher."""
        with self._lock:
            compiled = self._compiled.pop(pattern, None) or self._compile(pattern)
            self._compiled[pattern] = compiled
            if len(self._compiled) > MAX_CACHED_REGEXES:
                self._compiled.popitem(last=False)
            return compiled.deep_copy()

    def _compile(self, pattern: str) -> LLMatcher:
        if len(pattern) > MAX_REGEX_CHARS:
            raise UserInputError(
                f"The regular expression has {len(pattern)} characters; at most "
                f"{MAX_REGEX_CHARS} are allowed."
            )
        # Without no_forcing a mask would leave out tokens wherever the next bytes are decided.
        lark = f'%llguidance {{"no_forcing": true}}\nstart: /{regex_to_lark(pattern, "")}/'
        compiled = LLMatcher(
            self._tokenizer,
            LLMatcher.grammar_from_lark(lark),
            log_level=0,
            limits=LLParserLimits(**_LIMITS),
        )
        compiled.compute_bitmask()  # finds out whether anything matches
        reason = _failure(compiled)
        if reason:
            raise UserInputError(
                f"The regular expression {_shortened(pattern)} cannot be used: {reason}. "
                "Look-around, back-references and word boundaries are not supported."
            )
        return compiled


class _LibraryVocabulary:
    """A vocabulary in the form that llguidance reads."""

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


_compilers: WeakKeyDictionary[MatcherTokenizer, _Compiler] = WeakKeyDictionary()
_compilers_lock = threading.Lock()


def _compiler_of(tokenizer: MatcherTokenizer) -> _Compiler:
    with _compilers_lock:
        compiler = _compilers.get(tokenizer)
        if compiler is None:
            compiler = _compilers[tokenizer] = _Compiler(tokenizer)
        return compiler


def _failure(matcher: LLMatcher) -> str:
    """What went wrong in one line, "" if nothing did."""
    if not matcher.is_error():
        return ""
    lines = [line.strip() for line in matcher.get_error().splitlines()]
    if lines[:1] == ["NoExtensionBias"]:
        return _DEAD_END
    told = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "")
    return told.removeprefix("error:").strip().rstrip(".")


def _shortened(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else pattern[:77] + "...")
