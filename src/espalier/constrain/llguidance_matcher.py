"""One sequence's way through a grammar of the llguidance library.

Owns the meeting of the library's matcher and the seam: masks at the width of the logits, ends,
errors. Compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from llguidance import LLMatcher
from numpy.typing import NDArray

from espalier import _native
from espalier.constrain.llguidance_failure import DEAD_END, failure
from espalier.constrain.matcher import MAX_FORCED_BYTES
from espalier.errors import CapacityError, UserInputError

Answer = TypeVar("Answer")


class MatcherSource(Protocol):
    """Where a matcher gets the library's from. Thread-safe."""

    def start(self) -> tuple[LLMatcher, int]:
        """A matcher of the library at the start of a text, and the generation of its lexer."""
        ...

    def renew(self, generation: int) -> None:
        """Makes a new lexer unless this generation's has been replaced already."""
        ...


class LlguidanceMatcher:
    """A Matcher of the texts of one grammar."""

    def __init__(self, source: MatcherSource, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._source = source
        self._matcher, self._generation = source.start()
        self._token_ids: list[int] = []  # accepted, without ends
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids
        self._num_ends = 0  # accepted; the library refuses them where it stopped by itself
        self._ends = np.zeros((vocab_size + 31) // 32, np.uint32)  # the ends of text as a mask
        for token_id in eos_ids:
            self._ends[token_id // 32] |= np.uint32(1 << token_id % 32)
        self._ends.setflags(write=False)
        self._mask: NDArray[np.uint32] | None = None  # of the present state, once computed

    @property
    def is_complete(self) -> bool:
        """See Matcher."""
        return bool(self._matcher.is_accepting())

    @property
    def must_stop(self) -> bool:
        """See Matcher."""
        if self._num_ends:
            return True
        if self._matcher.is_stopped():
            return not self._matcher.is_error()
        # The library tells late where nothing can follow, so the mask is asked.
        return self.is_complete and np.array_equal(self.mask(), self._ends)

    @property
    def state_key(self) -> None:
        """See Matcher; the library does not tell."""
        return None

    def mask(self) -> NDArray[np.uint32]:
        """See Matcher."""
        if self._num_ends:
            return self._ends
        if self._mask is None:
            words = self._asked(lambda matcher: matcher.compute_bitmask())
            self._mask = self._fitted(np.frombuffer(words, np.uint32))
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
        if self._num_ends:
            return b""
        forced = self._asked(lambda matcher: matcher.compute_ff_bytes())
        return bytes(forced)[:MAX_FORCED_BYTES]

    def accept(self, token_id: int) -> None:
        """See Matcher."""
        if token_id in self._eos_ids and self.is_complete:
            self._num_ends += 1
            return
        # Consuming a wrong token would leave the library's matcher broken for good.
        if self._num_ends or self._asked(lambda it: it.validate_tokens([token_id])) != 1:
            raise UserInputError(
                f"The token {token_id} may not follow here: the form that the output must have "
                "excludes it. Only tokens that the mask allows can be accepted."
            )
        self._mask = None
        self._asked(lambda matcher: matcher.consume_token(token_id))
        self._token_ids.append(token_id)

    def rollback(self, num_tokens: int) -> None:
        """See Matcher."""
        num_accepted = len(self._token_ids) + self._num_ends
        if not 0 <= num_tokens <= num_accepted:
            raise UserInputError(
                f"{num_tokens} tokens cannot be taken back; {num_accepted} were accepted."
            )
        num_ends = min(num_tokens, self._num_ends)
        self._num_ends -= num_ends
        if num_tokens == num_ends:
            return
        self._mask = None
        self._asked(lambda matcher: matcher.rollback(num_tokens - num_ends))
        del self._token_ids[num_ends - num_tokens :]

    def _asked(self, ask: Callable[[LLMatcher], Answer]) -> Answer:
        """An answer of the library's matcher; raises CapacityError or UserInputError.

        All matchers of a grammar find states of one lexer, and its limit counts them together:
        what other texts found is no reason for this one to fail, so it is tried again alone.
        """
        answer = ask(self._matcher)
        reason = failure(self._matcher)
        if reason and reason != DEAD_END:
            self._source.renew(self._generation)
            self._matcher, self._generation = self._source.start()
            self._matcher.consume_tokens(self._token_ids)
            answer = ask(self._matcher)
            reason = failure(self._matcher)
        if reason == DEAD_END:
            raise UserInputError(
                f"The output cannot go on in the form that it must have: {reason}."
            )
        if reason:
            raise CapacityError(
                f"Matching the output's form stopped at a limit: {reason}. Use a simpler form."
            )
        return answer

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
