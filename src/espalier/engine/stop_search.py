"""Finds where stop strings and stop expressions end a text that arrives character by character.

Owns which of several stops counts, and whether it stays in the text. Knows no tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from espalier.engine.stop_automaton import stop_automaton
from espalier.types import SamplingParams

if TYPE_CHECKING:
    from espalier.constrain.regex_search import RegexSearch


@dataclass(frozen=True, slots=True)
class FoundStop:
    """A stop that is complete: its length in characters, and whether it stays in the text."""

    num_characters: int
    is_kept: bool


class StopSearch:
    """The search for all stops of one text.

    A stop is complete with its last character. Of those that are complete with the same character
    the longest counts. `cut_at` are stop strings that are never kept.
    """

    def __init__(self, sampling: SamplingParams, cut_at: tuple[str, ...] = ()) -> None:
        strings = sampling.stop + cut_at
        self._strings = stop_automaton(strings) if strings else None
        self._state = 0
        self._regex = _regex_search(sampling.stop_regex)
        self._keeps = sampling.no_stop_trim
        self._kept_strings = frozenset(sampling.stop if self._keeps else ())
        # Text that stays in any case need not wait.
        self._holds_back = not (self._keeps and self._kept_strings.issuperset(strings))

    @property
    def num_held(self) -> int:
        """Characters at the end of the text that may still be cut off."""
        if not self._holds_back:
            return 0
        num_held = 0 if self._strings is None else self._strings.depths[self._state]
        if self._regex is not None and not self._keeps:
            num_held = max(num_held, self._regex.num_held)
        return num_held

    def step(self, character: str) -> FoundStop | None:
        """Takes a character; the stop that it completes, if any."""
        length, is_kept = 0, False
        if self._strings is not None:
            self._state = self._strings.step(self._state, character)
            stop = self._strings.stops[self._state]
            if stop is not None:
                length, is_kept = len(stop), stop in self._kept_strings
        if self._regex is not None:
            found = self._regex.step(character)
            if found and found >= length:
                length, is_kept = found, self._keeps
        return FoundStop(length, is_kept) if length else None

    def restart(self) -> None:
        """Forgets the text so far: no stop begins in it."""
        self._state = 0
        if self._regex is not None:
            self._regex.restart()


def _regex_search(stop_regex: tuple[str, ...]) -> RegexSearch | None:
    if not stop_regex:
        return None
    from espalier.constrain.stop_regex import regex_search  # reads numpy, which few texts need

    return regex_search(stop_regex)


def stop_search(sampling: SamplingParams, cut_at: tuple[str, ...] = ()) -> StopSearch | None:
    """The search for the stops of a request; None where it has none.

    Raises SamplingError for a `stop_regex` that cannot be used.
    """
    if not (sampling.stop or sampling.stop_regex or cut_at):
        return None
    return StopSearch(sampling, cut_at)


def cut_at_stop(text: str, sampling: SamplingParams) -> tuple[str, str | None]:
    """A whole text up to its first stop, with it under `no_stop_trim`; and the stop, if any."""
    search = stop_search(sampling)
    if search is None:
        return text, None
    for end, character in enumerate(text, 1):
        found = search.step(character)
        if found is not None:
            start = end - found.num_characters
            return text[: end if found.is_kept else start], text[start:end]
    return text, None
