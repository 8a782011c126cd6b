"""Why a state stopped, and the exceptions that readers of its results get.

Each reader gets an exception of its own, chained to the original.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from espalier.errors import GenerationError, RequestCancelledError
from espalier.lang.location import SourceLine


@dataclass(frozen=True, slots=True)
class Failure:
    """The first thing that went wrong in a state; everything after it is cancelled.

    `call` describes the call that failed ("gen 'x'"), or is None where the program's body raised
    or the state was cancelled: then `cause` itself is what readers of the state get.
    """

    cause: BaseException
    call: str | None = None
    variable: str | None = None
    location: SourceLine | None = None
    source: object = None  # the operation that failed

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

    def raised(self) -> BaseException:
        """What `text()`, `sync()`, `join()` and iterators over the text raise."""
        if self.call is None:
            return self.cause
        return self._chained(self._described(), self.variable, self.location)

    def raised_for(
        self, source: object, call: str, name: str | None, location: SourceLine | None
    ) -> Callable[[], BaseException]:
        """What the reader of a variable raises that `source` would have set."""
        if source is self.source:
            return self.raised

        def raised() -> BaseException:
            reason = described(self.cause) if self.call is None else self._described()
            place = f" at {location}" if location else ""
            return self._chained(f"{call}{place} was cancelled: {reason}", name, location)

        return raised

    def _described(self) -> str:
        place = f" at {self.location}" if self.location else ""
        return f"{self.call}{place} failed: {described(self.cause)}"

    def _chained(
        self, message: str, variable: str | None, location: SourceLine | None
    ) -> GenerationError:
        error = GenerationError(
            message, variable=variable, location=str(location) if location else None
        )
        error.__cause__ = self.cause
        return error


def described(error: BaseException) -> str:
    """An error's class and what it says."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
