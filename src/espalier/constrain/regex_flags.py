"""Inline flags of regular expressions: `(?i)` for all of one, `(?i-s:...)` for a group.

Flags are the bits of an int: a group's flags are looked at for every character.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from espalier.constrain.regex_fault import RegexFaultError

IGNORE_CASE: Final = 1
DOT_ALL: Final = 2
VERBOSE: Final = 4
MULTI_LINE: Final = 8
ASCII: Final = 16
UNICODE: Final = 32  # the default; only what (?u) writes

_LETTERS = {
    "i": IGNORE_CASE,
    "s": DOT_ALL,
    "x": VERBOSE,
    "m": MULTI_LINE,
    "a": ASCII,
    "u": UNICODE,
}
_TYPES = ASCII | UNICODE
_ALLOWED = "i, s, x, m, a and u are the flags"


class InlineFlags(NamedTuple):
    """What stands after `(?`: flags turned on and off, and where the text goes on.

    `is_global` is true for `(?i)`, which is about the whole expression and opens no group.
    """

    added: int
    removed: int
    is_global: bool
    end: int

    def applied_to(self, flags: int) -> int:
        """The flags inside, where `flags` hold outside."""
        if self.added & _TYPES:
            flags &= ~_TYPES
        return (flags | self.added) & ~self.removed


def parse_inline_flags(text: str, start: int) -> InlineFlags:
    """Reads the flags that begin at `start`, past their `)` or `:`. Raises RegexFaultError."""
    added, position = _letters(text, start, "-:)")
    if added & _TYPES == _TYPES:
        raise RegexFaultError("the flags a and u exclude each other", start)
    sign = text[position]
    if sign == ")":
        return InlineFlags(added, 0, True, position + 1)
    removed = 0
    if sign == "-":
        minus = position
        removed, position = _letters(text, minus + 1, ":")
        if position == minus + 1:
            raise RegexFaultError(f"a flag is missing after -; {_ALLOWED}", position)
        if removed & _TYPES:
            raise RegexFaultError("the flags a and u cannot be turned off", minus)
        if removed & added:
            raise RegexFaultError("a flag is turned on and off at once", start)
    return InlineFlags(added, removed, False, position + 1)


def _letters(text: str, start: int, ends: str) -> tuple[int, int]:
    """Flags from `start` on, and the place of the one of `ends` behind them."""
    flags = 0
    for position in range(start, len(text)):
        letter = text[position]
        if letter in ends:
            return flags, position
        if letter not in _LETTERS:
            wanted = " or ".join(ends)
            raise RegexFaultError(
                f"{letter!r} is no flag; {_ALLOWED}, and {wanted} ends them", position
            )
        flags |= _LETTERS[letter]
    raise RegexFaultError("the flags are not ended", len(text))
