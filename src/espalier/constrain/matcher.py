"""The seam between the engine and whatever decides which tokens a form of output allows.

Three lifetimes: a compiler per model, a grammar per form (compiled once, shared, immutable to its
users), a matcher per generation. They know bytes of tokens and nothing of logits.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class MatcherTokenizer(Protocol):
    """The part of a tokenizer that matchers need. Must be weakly referable and hashable."""

    vocab_size: int

    @property
    def eos_ids(self) -> Collection[int]:
        """Tokens that end a text."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes that a token adds to a text."""
        ...

    def is_control(self, token_id: int) -> bool:
        """True for a token that is no text."""
        ...


class Matcher(Protocol):
    """Which tokens may follow, for one sequence. Not thread-safe.

    The text so far is the bytes of the accepted tokens. It is always the beginning of a text of
    the language. What a matcher answers depends on these bytes alone, not on the tokens that they
    came in.
    """

    @property
    def is_complete(self) -> bool:
        """The text so far is in the language, so that it may end here."""
        ...

    @property
    def must_stop(self) -> bool:
        """The text so far is in the language and nothing may follow (or it was ended)."""
        ...

    @property
    def state_key(self) -> Hashable | None:
        """Equal keys (of any two matchers) mean equal answers from here on; None: not known."""
        ...

    def mask(self) -> NDArray[np.uint32]:
        """Tokens that may follow: bit i % 32 of word i // 32, [ceil(vocab_size / 32)].

        These are the tokens after which the text can still become one of the language, and the
        ends of text where it is complete. Read-only and shared. Raises CapacityError where finding
        them exceeds a limit of time or memory.
        """
        ...

    @property
    def num_allowed(self) -> int:
        """How many tokens `mask` allows. Raises as it does."""
        ...

    def allowed_ids(self) -> NDArray[np.int32]:
        """The tokens that `mask` allows, ascending: [num_allowed]. Read-only and shared.

        Cheap where they are few; ask `num_allowed` first. Raises as `mask` does.
        """
        ...

    def forced_bytes(self) -> bytes:
        """The longest bytes with which every way to go on begins; b"" where the text may end here.

        Bounded (MAX_FORCED_BYTES): what is left of a longer one is forced after it. They may end
        inside a character. Raises CapacityError as `mask` does.
        """
        ...

    def accept(self, token_id: int) -> None:
        """Goes on by one token; raises UserInputError, unchanged, for one that `mask` excludes."""
        ...

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last accepted tokens."""
        ...


class Grammar(Protocol):
    """A compiled form, shared by the generations that must have it. Thread-safe."""

    @property
    def num_bytes(self) -> int:
        """Memory that it holds now, about."""
        ...

    def matcher(self) -> Matcher:
        """A matcher at the start of a text."""
        ...


MAX_FORCED_BYTES = 4096
