"""Matchers of one grammar of the llguidance library, kept between uses.

A matcher finds states of its lexer as texts get to them, and copies do not share what they find
later. So a matcher that is no longer used serves the next text, which then pays for nothing that
the texts before it found. Knows no masks and no tokens.
"""

from __future__ import annotations

import threading
from collections import deque

from llguidance import LLMatcher

MAX_IDLE = 4  # matchers; each holds its own states


class MatcherPool:
    """Thread-safe. `compiled` must be at the start of a text."""

    def __init__(self, compiled: LLMatcher) -> None:
        self._compiled = compiled
        self._lock = threading.Lock()
        # No lock around it: matchers come back when they are collected, in whatever thread.
        self._idle: deque[LLMatcher] = deque()

    @property
    def num_idle(self) -> int:
        """Matchers that wait to be used again."""
        return len(self._idle)

    def take(self) -> tuple[LLMatcher, bool]:
        """A matcher at the start of a text, and whether texts before used it."""
        while True:
            try:
                matcher = self._idle.pop()
            except IndexError:
                return self.unused(), False
            if matcher.reset() and not matcher.is_error():
                return matcher, True

    def unused(self) -> LLMatcher:
        """A matcher that no text used."""
        with self._lock:
            return self._compiled.deep_copy()

    def give_back(self, matcher: LLMatcher) -> None:
        """Keeps a matcher, in whatever state, if there is room."""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(matcher)
