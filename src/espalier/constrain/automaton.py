"""Grammars of patterns: one native automaton with its masks, shared by all their matchers.

Knows no syntax that a pattern was written in.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from espalier import _native
from espalier.constrain.explored_automaton import (
    ACCEPTING,
    CAN_GO_ON,
    ENDED,
    AllowedTokens,
    ExploredAutomaton,
    vocabularies,
)
from espalier.constrain.matcher import MAX_FORCED_BYTES, MatcherTokenizer
from espalier.constrain.pattern import Pattern
from espalier.errors import CapacityError, UserInputError

MAX_MASK_BYTES = 32 << 20  # of the masks that one grammar keeps


class AutomatonGrammar:
    """A Grammar of the texts of a pattern, over the tokens of one tokenizer.

    States and masks are found where texts get to. `vocab_size` is the width of the model's logits
    where it exceeds the tokenizer's vocabulary; `max_mask_bytes` bounds the masks that are kept:
    the least recently used go first. Raises UserInputError for a pattern that no text made of
    tokens matches, or that is beyond the limits.
    """

    def __init__(
        self,
        pattern: Pattern,
        tokenizer: MatcherTokenizer,
        vocab_size: int | None = None,
        *,
        max_mask_bytes: int = MAX_MASK_BYTES,
    ) -> None:
        self._pattern = pattern
        self._vocabulary = vocabularies.of(tokenizer)
        self._vocab_size = tokenizer.vocab_size if vocab_size is None else vocab_size
        self._max_mask_bytes = max_mask_bytes
        self._explored = self._unexplored()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        """See Grammar."""
        return self._explored.num_bytes

    def matcher(self) -> AutomatonMatcher:
        """See Grammar."""
        return AutomatonMatcher(self)

    @property
    def explored(self) -> ExploredAutomaton:
        """The automaton for texts from now on: a new one where what others explored fills it."""
        with self._lock:
            if self._explored.automaton.is_full:
                self._explored = self._unexplored()
            return self._explored

    def _unexplored(self) -> ExploredAutomaton:
        return ExploredAutomaton(
            self._pattern, self._vocabulary, self._vocab_size, self._max_mask_bytes
        )


class AutomatonMatcher:
    """A Matcher of the texts of a pattern, see AutomatonGrammar."""

    __slots__ = ("_allowed", "_before", "_explored", "_grammar", "_state", "_token_ids")

    def __init__(self, grammar: AutomatonGrammar) -> None:
        self._grammar = grammar
        self._token_ids: list[int] = []
        self._before: list[int] = []  # the states before each of these tokens
        self._allowed: AllowedTokens | None = None  # of the state, once asked for
        self._explored = grammar.explored
        self._state = self._explored.automaton.start

    @property
    def is_complete(self) -> bool:
        """See Matcher."""
        return self._state & ACCEPTING != 0

    @property
    def must_stop(self) -> bool:
        """See Matcher."""
        if self._state & (ACCEPTING | CAN_GO_ON) == ACCEPTING:
            return True
        if not self.is_complete or self._explored.spells_all:
            return False
        # Some byte may follow, but perhaps none that a token has.
        return self.num_allowed == self._explored.num_ends

    @property
    def state_key(self) -> tuple[int, int]:
        """See Matcher."""
        return self._explored.number, self._state

    @property
    def num_allowed(self) -> int:
        """See Matcher."""
        return (self._allowed or self._find_allowed()).num_allowed

    def mask(self) -> NDArray[np.uint32]:
        """See Matcher."""
        return (self._allowed or self._find_allowed()).mask

    def allowed_ids(self) -> NDArray[np.int32]:
        """See Matcher."""
        return (self._allowed or self._find_allowed()).ids()

    def forced_bytes(self) -> bytes:
        """See Matcher."""
        try:
            return self._explored.automaton.forced_bytes(self._state, MAX_FORCED_BYTES)
        except _native.AutomatonLimitError as error:
            self._start_again(error)
        with _reaching_limits():
            return self._explored.automaton.forced_bytes(self._state, MAX_FORCED_BYTES)

    def accept(self, token_id: int) -> None:
        """See Matcher."""
        try:
            state = self._explored.automaton.advance(self._state, token_id)
        except _native.AutomatonLimitError as error:
            self._start_again(error)
            with _reaching_limits():
                state = self._explored.automaton.advance(self._state, token_id)
        if state < 0:
            raise UserInputError(
                f"The token {token_id} may not follow here: the form that the output must have "
                "excludes it. Only tokens that the mask allows can be accepted."
            )
        self._before.append(self._state)
        self._token_ids.append(token_id)
        self._state = state
        self._allowed = None

    def rollback(self, num_tokens: int) -> None:
        """See Matcher."""
        if not 0 <= num_tokens <= len(self._before):
            raise UserInputError(
                f"{num_tokens} tokens cannot be taken back; {len(self._before)} were accepted."
            )
        if num_tokens:
            self._state = self._before[-num_tokens]
            del self._before[-num_tokens:], self._token_ids[-num_tokens:]
            self._allowed = None

    def _find_allowed(self) -> AllowedTokens:
        try:
            allowed = self._explored.allowed(self._state)
        except _native.AutomatonLimitError as error:
            self._start_again(error)
            with _reaching_limits():
                allowed = self._explored.allowed(self._state)
        if allowed.num_allowed == 0 and self._state >> 2 != ENDED and not self.is_complete:
            raise UserInputError(
                "The output cannot go on in the form that it must have: no text made of this "
                "model's tokens matches it."
            )
        self._allowed = allowed
        return allowed

    def _start_again(self, error: _native.AutomatonLimitError) -> None:
        """Goes the way here in a new automaton, where what others explored filled this one."""
        if not self._explored.automaton.is_full:
            raise _capacity_error(error) from error
        explored = self._grammar.explored
        before, state = [], explored.automaton.start
        with _reaching_limits():
            for token_id in self._token_ids:
                before.append(state)
                state = explored.automaton.advance(state, token_id)
        self._explored, self._before, self._state = explored, before, state


@contextmanager
def _reaching_limits() -> Iterator[None]:
    try:
        yield
    except _native.AutomatonLimitError as error:
        raise _capacity_error(error) from error


def _capacity_error(error: _native.AutomatonLimitError) -> CapacityError:
    return CapacityError(
        f"Matching the output's form stopped at a limit: {error}. Use a simpler form."
    )
