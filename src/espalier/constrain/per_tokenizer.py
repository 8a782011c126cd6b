"""What is made once for each tokenizer and lives as long as it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from espalier.constrain.matcher import MatcherTokenizer

T = TypeVar("T")


class PerTokenizer(Generic[T]):
    """Makes a value for each tokenizer by `make`, which may keep no reference to the tokenizer.

    Thread-safe; while one value is made, others wait.
    """

    def __init__(self, make: Callable[[MatcherTokenizer], T]) -> None:
        self._make = make
        self._made: WeakKeyDictionary[MatcherTokenizer, T] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, tokenizer: MatcherTokenizer) -> T:
        """The tokenizer's value."""
        with self._lock:
            value = self._made.get(tokenizer)
            if value is None:
                value = self._made[tokenizer] = self._make(tokenizer)
            return value
