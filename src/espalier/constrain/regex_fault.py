"""What is wrong with a regular expression, and where: raised inside the parser only."""

from __future__ import annotations


class RegexFaultError(Exception):
    """A reason and the position of the character that it is about, from 0.

    `parse_regex` turns it into a UserInputError that shows the expression.
    """

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.position = position
