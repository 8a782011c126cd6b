"""A native automaton of a pattern with the masks of its states, over the tokens of a vocabulary.

Owns the limits, the masks that are kept, and the tree of tokens of each tokenizer (referenced
weakly). Knows no syntax that a pattern was written in, and no single text.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from espalier import _native
from espalier.constrain.matcher import MatcherTokenizer
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
from espalier.constrain.per_tokenizer import PerTokenizer
from espalier.errors import UserInputError

MAX_STATES = 100_000  # of one automaton
MAX_AUTOMATON_BYTES = 64 << 20
# A step takes 10 to 30 ns; a mask over 50,000 tokens in a state seen first takes about 1,000.
MAX_COMPILE_STEPS = 1_000_000
MAX_STEPS = 1_000_000  # of one mask, one token or one forced span

# What the bits of a state say, see native/automaton.h; the others are its number.
ACCEPTING, CAN_GO_ON = 1, 2
DEAD, ENDED = 0, 1  # numbers

_CLASSES = (Literal, CharClass, Concat, Alternation, Repeat, Both, Without)
_UTF8_BYTES = frozenset({*range(0xC0), *range(0xC2, 0xF5)})
_MASK_OVERHEAD_BYTES = 400  # objects around the words of a mask
_numbers = itertools.count()


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


class TokenVocabulary:
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


class ExploredAutomaton:
    """A native automaton and the masks that were asked for, the last used `max_mask_bytes` of them.

    Thread-safe. Raises UserInputError for a pattern that no text made of tokens matches, or that
    is beyond the limits.

    Attributes:
        automaton: whose methods raise AutomatonLimitError.
        number: no other object has it.
        spells_all: every byte of UTF-8 is a token.
        num_ends: ends of text among the tokens.
    """

    def __init__(
        self, pattern: Pattern, vocabulary: TokenVocabulary, vocab_size: int, max_mask_bytes: int
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
        if self.automaton.start >> 2 == DEAD:
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
        """Memory that it holds now, about."""
        return self.automaton.num_bytes + len(self._masks) * self._mask_bytes

    def allowed(self, state: int) -> AllowedTokens:
        """The tokens that may follow in a state. Raises AutomatonLimitError."""
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


vocabularies = PerTokenizer(TokenVocabulary)
