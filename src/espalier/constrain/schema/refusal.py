"""What is said of a schema that cannot be honoured. Knows no keyword's meaning."""

from __future__ import annotations

from espalier.errors import EspalierError, UserInputError, shown


class NotRegular(EspalierError):  # noqa: N818
    """The values of a schema have no pattern here; a grammar with recursion may still have them.

    Attributes:
        keyword: the keyword that needs more than a pattern, or "" where it is a whole schema.
        path: JSON pointer to the schema that has it.
        reason: why, as a clause.
    """

    def __init__(self, keyword: str, path: str, reason: str) -> None:
        super().__init__(f"{described(keyword, path)}: {reason}")
        self.keyword = keyword
        self.path = path
        self.reason = reason


def described(keyword: str, path: str) -> str:
    """How a message names a keyword at a place of a schema."""
    place = f"at {path}" if path else "at the top of the schema"
    return f"{keyword!r} {place}" if keyword else f"the schema {place}"


def refusal(keyword: str, path: str, reason: str) -> UserInputError:
    """The error for a keyword that cannot be enforced. `reason` is a sentence without its end."""
    return UserInputError(f"JSON schema: {described(keyword, path)} cannot be used: {reason}.")


def malformed(keyword: str, path: str, value: object, allowed: str) -> UserInputError:
    """The error for a keyword whose value is not what it may be."""
    return UserInputError(
        f"JSON schema: {described(keyword, path)} is {shown(value)}; {allowed} is allowed."
    )
