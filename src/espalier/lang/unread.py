"""Errors that nobody has read: each is logged when nothing is left that could tell of it.

A state holds the errors of its calls until somebody reads it. Where nobody ever does, the error
comes out here, on the logger of this module, rather than vanish with the state.
"""

from __future__ import annotations

import itertools
import logging
import weakref

MAX_LOGGED = 20  # of one process: a batch may hold any number of failed states

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)


class UnreadError:
    """Logs a text when its owner goes (at the latest when Python exits), unless it was read."""

    __slots__ = ("_finalizer",)

    def __init__(self, owner: object, text: str) -> None:
        self._finalizer = weakref.finalize(owner, _tell, text)

    def read(self) -> None:
        """Says that somebody has seen the error."""
        self._finalizer.detach()


def _tell(text: str) -> None:
    number = next(_numbers)
    if number < MAX_LOGGED:
        _log.error("an error of a program was never read: %s", text)
    elif number == MAX_LOGGED:
        _log.error("an error of a program was never read: %s (no more of these are shown)", text)
