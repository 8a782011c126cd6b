"""One constrained generation: which tokens may come, and which come without being asked for.

Joins a matcher and a canonicaliser. What a constraint means is decided here and does not depend on
whether the engine computes forced tokens one by one or all at once (paper section 5). Knows no
logits, no KV and no requests.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.constrain.canonical import CONTEXT_TOKENS, Canonicaliser, Replacement
from espalier.constrain.matcher import Matcher


class TailChange(NamedTuple):
    """How an output goes on: its last `num_removed` tokens are taken back, then come `token_ids`.

    The text of the tokens taken back is the beginning of that of the new ones. The last
    `num_forced` of the new tokens need no choice by the model.
    """

    num_removed: int
    token_ids: list[int]
    num_forced: int


class Guide:
    """Follows one output of at most `max_tokens` tokens.

    Without a canonicaliser the matcher's masks are all there is, as in other engines: nothing is
    forced, and tokens stay as they were chosen.
    """

    def __init__(
        self, matcher: Matcher, canonicaliser: Canonicaliser | None, max_tokens: int
    ) -> None:
        self.matcher = matcher
        self._canonicaliser = canonicaliser
        self._max_tokens = max_tokens
        self._token_ids: list[int] = []
        self.num_forced = 0  # tokens of the output that the model was not asked for
        self.forced_spans: list[tuple[int, int]] = []  # (start, end) of those, for drawing

    @property
    def must_stop(self) -> bool:
        """The output is complete and nothing may follow it."""
        return self.matcher.must_stop

    def mask(self) -> NDArray[np.uint32]:
        """Tokens that may follow, as `Matcher.mask`."""
        return self.matcher.mask()

    def start(self) -> TailChange:
        """The tokens that every output begins with."""
        return self._forced(0, 0)

    def take(self, token_id: int) -> TailChange:
        """Goes on by a chosen token; raises UserInputError for one that the mask excludes."""
        self.matcher.accept(token_id)
        num_known = len(self._token_ids)
        self._token_ids.append(token_id)
        num_kept = num_known
        if self._canonicaliser is not None and len(self._token_ids) < self._max_tokens:
            healed = self._canonicaliser.heal(self._token_ids)
            if healed is not None and self._fits(healed):
                self._replace(healed)
                num_kept = min(num_kept, healed.num_kept)
        return self._forced(num_known, num_kept)

    def _forced(self, num_known: int, num_kept: int) -> TailChange:
        """The change from `num_known` tokens, of which `num_kept` stay, with what is forced."""
        num_chosen = len(self._token_ids)
        extension = self._extension()
        if extension is not None:
            num_free = min(num_chosen, extension.num_kept)
            self._replace(extension)
            if len(self._token_ids) > num_chosen:
                self.num_forced += len(self._token_ids) - num_chosen
                self.forced_spans.append((num_chosen, len(self._token_ids)))
            num_kept = min(num_kept, num_free)
            num_forced = len(self._token_ids) - num_free
        else:
            num_forced = 0
        return TailChange(num_known - num_kept, self._token_ids[num_kept:], num_forced)

    def _extension(self) -> Replacement | None:
        canonicaliser = self._canonicaliser
        if canonicaliser is None or len(self._token_ids) >= self._max_tokens:
            return None
        forced = self.matcher.forced_bytes()
        if not forced:
            return None
        extension = self._extended(canonicaliser, forced)
        if extension is None:
            return None
        room = self._max_tokens - extension.num_kept
        if len(extension.token_ids) <= room:
            return extension
        cut = Replacement(extension.num_kept, extension.token_ids[:room])
        return cut if self._covers_text(cut) else None

    def _extended(self, canonicaliser: Canonicaliser, forced: bytes) -> Replacement | None:
        """The tokens of forced bytes; what is known of the same place in other outputs is kept."""
        num_known = len(self._token_ids)
        state, context = self.matcher.state_key, tuple(self._token_ids[-CONTEXT_TOKENS:])
        key = None if state is None else (state, context, num_known > CONTEXT_TOKENS)
        found = canonicaliser.known.get(key) if key is not None else None
        if found is None:
            found = canonicaliser.extend(self._token_ids, forced, self._next_bytes)
            if key is not None:
                canonicaliser.known.put(key, _relative(found, num_known))
            return found
        num_removed, token_ids = found
        return Replacement(num_known - num_removed, token_ids) if token_ids else None

    def _next_bytes(self, replacement: Replacement) -> frozenset[int]:
        """Bytes that may come after the text of a replacement; none where it must end there."""
        assert self._canonicaliser is not None
        removed = self._token_ids[replacement.num_kept :]
        matcher = self.matcher
        self._move(removed, replacement.token_ids)
        try:
            if matcher.must_stop:
                return frozenset()
            return self._canonicaliser.first_bytes(matcher.mask())
        finally:
            self._move(replacement.token_ids, removed)

    def _fits(self, replacement: Replacement) -> bool:
        return replacement.num_kept + len(replacement.token_ids) <= self._max_tokens

    def _covers_text(self, replacement: Replacement) -> bool:
        """Whether the tokens stand for all text that there is, which may have been shown."""
        assert self._canonicaliser is not None
        known = self._canonicaliser.text_bytes(self._token_ids[replacement.num_kept :])
        return len(self._canonicaliser.text_bytes(replacement.token_ids)) >= len(known)

    def _replace(self, replacement: Replacement) -> None:
        removed = self._token_ids[replacement.num_kept :]
        self._move(removed, replacement.token_ids)
        self._token_ids[replacement.num_kept :] = replacement.token_ids

    def _move(self, removed: list[int], added: list[int]) -> None:
        if removed:
            self.matcher.rollback(len(removed))
        for token_id in added:
            self.matcher.accept(token_id)


def _relative(extension: Replacement | None, num_known: int) -> tuple[int, list[int]]:
    """How many tokens are replaced, and by which; none where there is no extension."""
    if extension is None:
        return 0, []
    return num_known - extension.num_kept, extension.token_ids
