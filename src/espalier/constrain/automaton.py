"""Grammars of patterns: one native automaton with its masks, shared by all their matchers.

Owns the tree of tokens of each tokenizer (referenced weakly), the limits, and the masks that are
kept. Knows no syntax that a pattern was written in.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from espalier import _native
from espalier.constrain.matcher import MAX_FORCED_BYTES, MatcherTokenizer
from espalier.constrain.pattern import (
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)
from espalier.errors import CapacityError, UserInputError

MAX_MASK_BYTES = 32 << 20  # of the masks that one grammar keeps
MAX_STATES = 100_000  # of one automaton
MAX_AUTOMATON_BYTES = 64 << 20
# A step takes 10 to 20 ns; a mask over 50,000 tokens in a state seen first takes about 1,000.
MAX_COMPILE_STEPS = 1_000_000
MAX_STEPS = 1_000_000  # of one mask, one token or one forced span

_CLASSES = (Literal, CharClass, Concat, Alternation, Repeat, Both, Without)
_numbers = itertools.count()
_UTF8_BYTES = frozenset({*range(0x80), *range(0x80, 0xC0), *range(0xC2, 0xF5)})
_MASK_OVERHEAD_BYTES = 400  # objects around the words of a mask

# What the bits of a state's number say, see native/automaton.h.
_ACCEPTING, _CAN_GO_ON = 1, 2
_DEAD, _ENDED = 0, 1  # numbers


class AllowedTokens:
    """The tokens that may follow in one state. Read-only and shared.

    Attributes:
        mask: see Matcher.mask.
        num_allowed: how many bits of it are set.
    """

    __slots__ = ("_ids", "mask", "num_allowed")

    def __init__(self, mask: NDArray[np.uint32], num_allowed: int) -> None:
        self.mask = mask
        self.num_allowed = num_allowed
        self._ids: NDArray[np.int32] | None = None

    def ids(self) -> NDArray[np.int32]:
        """Their ids, ascending: [num_allowed]."""
        if self._ids is None:
            self._ids = _native.allowed_ids(self.mask)
        return self._ids


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
        self._vocabulary = _vocabulary_of(tokenizer)
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
    def explored(self) -> _Explored:
        """The automaton for texts from now on: a new one where what others explored fills it."""
        with self._lock:
            if self._explored.automaton.is_full:
                self._explored = self._unexplored()
            return self._explored

    def _unexplored(self) -> _Explored:
        return _Explored(self._pattern, self._vocabulary, self._vocab_size, self._max_mask_bytes)


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
        return self._state & _ACCEPTING != 0

    @property
    def must_stop(self) -> bool:
        """See Matcher."""
        if self._state & (_ACCEPTING | _CAN_GO_ON) == _ACCEPTING:
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
        if allowed.num_allowed == 0 and self._state >> 2 != _ENDED and not self.is_complete:
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


class _Explored:
    """A native automaton, and masks of its states. Thread-safe."""

    def __init__(
        self, pattern: Pattern, vocabulary: _Vocabulary, vocab_size: int, max_mask_bytes: int
    ) -> None:
        limits = _native.AutomatonLimits(
            MAX_AUTOMATON_BYTES, MAX_STATES, MAX_COMPILE_STEPS, MAX_STEPS
        )
        try:
            self.automaton = _native.Automaton(
                pattern, _CLASSES, vocabulary.trie, vocabulary.eos_ids, vocab_size, limits
            )
        except _native.AutomatonLimitError as error:
            raise UserInputError(
                f"The form that the output must have is too large: {error}. Use a simpler one."
            ) from error
        if self.automaton.start >> 2 == _DEAD:
            raise UserInputError(
                "The form that the output must have cannot be met: no text made of this model's "
                "tokens matches it. See that its parts do not contradict each other."
            )
        self.number = next(_numbers)
        self.spells_all = vocabulary.spells_all
        self.num_ends = sum(token_id < vocab_size for token_id in vocabulary.eos_ids)
        self._mask_bytes = 4 * ((vocab_size + 31) // 32) + _MASK_OVERHEAD_BYTES
        self._max_masks = max(1, max_mask_bytes // self._mask_bytes)
        self._masks: OrderedDict[int, AllowedTokens] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_bytes(self) -> int:
        return self.automaton.num_bytes + len(self._masks) * self._mask_bytes

    def allowed(self, state: int) -> AllowedTokens:
        mask_state = self.automaton.mask_state(state)
        with self._lock:
            known = self._masks.get(mask_state)
            if known is not None:
                self._masks.move_to_end(mask_state)
                return known
        found = AllowedTokens(*self.automaton.mask(mask_state))
        with self._lock:
            found = self._masks.setdefault(mask_state, found)
            if len(self._masks) > self._max_masks:
                self._masks.popitem(last=False)
        return found


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


class _Vocabulary:
    """The tokens of one tokenizer, to which it holds no reference."""

    def __init__(self, tokenizer: MatcherTokenizer) -> None:
        self.eos_ids = sorted(tokenizer.eos_ids)
        no_text = frozenset(self.eos_ids)
        self.trie = _native.TokenTrie(
            [
                b"" if i in no_text or tokenizer.is_control(i) else tokenizer.token_bytes(i)
                for i in range(tokenizer.vocab_size)
            ]
        )
        self.spells_all = set(self.trie.spelled_bytes) >= _UTF8_BYTES


_vocabularies: WeakKeyDictionary[MatcherTokenizer, _Vocabulary] = WeakKeyDictionary()
_vocabularies_lock = threading.Lock()


def _vocabulary_of(tokenizer: MatcherTokenizer) -> _Vocabulary:
    with _vocabularies_lock:
        vocabulary = _vocabularies.get(tokenizer)
        if vocabulary is None:
            vocabulary = _vocabularies[tokenizer] = _Vocabulary(tokenizer)
        return vocabulary
