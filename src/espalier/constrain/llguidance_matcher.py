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

from espalier.constrain.matcher import MatcherTokenizer
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


class RegexMatcher:
    """A Matcher of the texts that a regular expression matches as a whole."""

    def __init__(self, compiled: LLMatcher, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._matcher = compiled
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids

    @property
    def is_complete(self) -> bool:
        """See Matcher."""
        return bool(self._matcher.is_accepting())

    @property
    def must_stop(self) -> bool:
        """See Matcher."""
        return bool(self._matcher.is_stopped()) and not self._matcher.is_error()

    def mask(self) -> NDArray[np.uint32]:
        """See Matcher."""
        words = np.frombuffer(self._matcher.compute_bitmask(), np.uint32)
        self._check()
        num_words = (self._vocab_size + 31) // 32
        if len(words) != num_words or not self._eos_ids:
            words = _fitted(words, num_words, self._vocab_size)
        return words

    def accept(self, token_id: int) -> None:
        """See Matcher."""
        # Consuming a wrong token would leave the library's matcher broken for good.
        if self._matcher.validate_tokens([token_id]) != 1:
            self._check()
            raise UserInputError(
                f"The token {token_id} may not follow here: the form that the output must have "
                "excludes it. Only tokens that the mask allows can be accepted."
            )
        self._matcher.consume_token(token_id)
        self._check()

    def rollback(self, num_tokens: int) -> None:
        """See Matcher."""
        if not self._matcher.rollback(num_tokens):
            self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise CapacityError(
                "Matching the output's form stopped at a limit: "
                f"{_first_line(self._matcher.get_error())}. Use a simpler regular expression."
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
        reason = ""
        if not compiled.is_error() and not any(compiled.compute_bitmask()):
            reason = "no text of this model's tokens matches it"
        if compiled.is_error():
            reason = _first_line(compiled.get_error())
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


def _fitted(words: NDArray[np.uint32], num_words: int, num_bits: int) -> NDArray[np.uint32]:
    """A mask of another length, without bits from `num_bits` on."""
    fitted = np.zeros(num_words, np.uint32)
    count = min(num_words, len(words))
    fitted[:count] = words[:count]
    if num_bits % 32:
        fitted[-1] &= np.uint32((1 << num_bits % 32) - 1)
    return fitted


def _first_line(message: str) -> str:
    lines = [line.strip() for line in message.splitlines()]
    told = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "")
    return told.removeprefix("error:").strip().rstrip(".")


def _shortened(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 80 else pattern[:77] + "...")
