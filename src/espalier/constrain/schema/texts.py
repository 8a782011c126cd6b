"""A pattern with its JSON spelling, compared by identity: hashing a pattern would walk it."""

from __future__ import annotations

from espalier.constrain.membership import is_member
from espalier.constrain.pattern import Pattern
from espalier.constrain.schema.json_text import quoted


class Texts:
    """Texts of a pattern."""

    __slots__ = ("_quoted", "pattern")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self._quoted: Pattern | None = None

    @property
    def quoted(self) -> Pattern:
        """The texts as JSON strings in canonical spelling."""
        if self._quoted is None:
            self._quoted = quoted(self.pattern)
        return self._quoted

    def has(self, text: str) -> bool:
        """The text is one of them."""
        return is_member(self.pattern, text)
