"""Why a state stopped, and the exceptions that readers of its results get.

Each reader gets an exception of its own, chained to the original.
"""

from __future__ import annotations

from collections.abc import Callable

from espalier.errors import (
    GenerationError,
    GenerationTimeoutError,
    ProgramTimeoutError,
    RequestCancelledError,
)
from espalier.lang.location import SourceLine
from espalier.lang.unread import UnreadError


class Failure:
    """The first thing that went wrong in a state; everything after it is cancelled.

    `call` describes the call that failed ("gen 'x'"), or is None where the program's body raised
    or the state was cancelled: then `cause` itself is what readers of the state get. `source` is
    the operation that failed. A failure that nobody reads is logged, unless it is a cancellation.
    """

    __slots__ = (
        "__weakref__",
        "_follower",
        "_unread",
        "call",
        "cause",
        "location",
        "source",
        "variable",
    )

    def __init__(
        self,
        cause: BaseException,
        call: str | None = None,
        variable: str | None = None,
        location: SourceLine | None = None,
        source: object = None,
    ) -> None:
        self.cause = cause
        self.call = call
        self.variable = variable
        self.location = location
        self.source = source
        self._follower: Failure | None = None
        self._unread = UnreadError(self, self.described()) if self._is_news() else None

    @classmethod
    def cancelled(cls, why: str = "the state was cancelled") -> Failure:
        """A failure that nobody is to blame for."""
        return cls(RequestCancelledError(why))

    @classmethod
    def of_body(cls, error: BaseException) -> Failure:
        """The failure of a body that raised; an interruption is a cancellation to all others."""
        if isinstance(error, Exception):
            return cls(error)
        return cls.cancelled(f"the program was interrupted by {type(error).__name__}")

    def _is_news(self) -> bool:
        """False for a cancellation, and for the error of a body that read what was cancelled."""
        reason = self.cause.__cause__ if isinstance(self.cause, GenerationError) else self.cause
        return self.call is not None or not isinstance(reason, RequestCancelledError)

    def mark_read(self) -> None:
        """Says that somebody has been told of it."""
        if self._unread is not None:
            self._unread.read()
        if self._follower is not None:
            self._follower.mark_read()

    def leads_to(self, failure: Failure) -> None:
        """Says that another failure followed from this one: who reads this one knows of both."""
        self._follower = failure

    def raised(self) -> BaseException:
        """What `text()`, `sync()`, `join()` and iterators over the text raise."""
        self.mark_read()
        if self.call is None:
            return self.cause
        return self._chained(self.described(), self.variable, self.location)

    def raised_for(
        self, source: object, call: str, name: str | None, location: SourceLine | None
    ) -> Callable[[], BaseException]:
        """What the reader of a variable raises that `source` would have set."""
        if source is self.source:
            return self.raised

        def raised() -> BaseException:
            self.mark_read()
            place = f" at {location}" if location else ""
            message = f"{call}{place} was cancelled: {self.described()}"
            return self._chained(message, name, location)

        return raised

    def described(self) -> str:
        """What went wrong, and where."""
        if self.call is None:
            return described(self.cause)
        place = f" at {self.location}" if self.location else ""
        return f"{self.call}{place} failed: {described(self.cause)}"

    def _chained(
        self, message: str, variable: str | None, location: SourceLine | None
    ) -> GenerationError:
        is_timeout = isinstance(self.cause, ProgramTimeoutError)
        kind = GenerationTimeoutError if is_timeout else GenerationError
        error = kind(message, variable=variable, location=str(location) if location else None)
        error.__cause__ = self.cause
        return error


def described(error: BaseException) -> str:
    """An error's class and what it says."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
