"""What begins a group of a regular expression: `(`, `(?:`, `(?P<name>`, `(?i:`, or is refused."""

from __future__ import annotations

import re
from typing import NamedTuple

from espalier.constrain.regex_fault import RegexFaultError
from espalier.constrain.regex_flags import InlineFlags, parse_inline_flags

_COMMENT = re.compile(r"\(\?#(?:[^)\\]|\\.)*\)", re.DOTALL)
_REFUSED = (
    ("(?=", "look-ahead", "it asks what follows without matching it"),
    ("(?!", "look-ahead", "it asks what follows without matching it"),
    ("(?<=", "look-behind", "it asks what comes before"),
    ("(?<!", "look-behind", "it asks what comes before"),
    ("(?P=", "a back-reference", "no automaton remembers what a group matched"),
    ("(?(", "a conditional", "no automaton remembers whether a group matched"),
    ("(?>", "an atomic group", "what it matches depends on the search, not on the text alone"),
)


class GroupStart(NamedTuple):
    """What a `(` begins; the text goes on at `end`.

    `opens` is false for a comment and for flags of the whole expression. `name` is "" for a group
    without one.
    """

    opens: bool
    end: int
    name: str = ""
    flags: InlineFlags | None = None


def parse_group_start(text: str, start: int) -> GroupStart:
    """Reads the beginning of a group, whose `(` is at `start`. Raises RegexFaultError."""
    if not text.startswith("(?", start):
        return GroupStart(True, start + 1)
    sign = text[start + 2 : start + 3]
    if sign == ":":
        return GroupStart(True, start + 3)
    if sign == "#":
        comment = _COMMENT.match(text, start)
        if comment is None:
            raise RegexFaultError("the comment is not closed by a )", start)
        return GroupStart(False, comment.end())
    for beginning, construct, reason in _REFUSED:
        if text.startswith(beginning, start):
            raise RegexFaultError(
                f"{beginning}...), {construct}, is not supported: {reason}", start
            )
    if text.startswith("(?P<", start):
        return _named(text, start)
    if sign.isalpha() or sign == "-":
        if sign in ("P", "<"):
            raise RegexFaultError(f"{text[start : start + 4]} begins no kind of group", start)
        flags = parse_inline_flags(text, start + 2)
        return GroupStart(not flags.is_global, flags.end, flags=flags)
    raise RegexFaultError(f"{text[start : start + 4]} begins no kind of group", start)


def _named(text: str, start: int) -> GroupStart:
    end = text.find(">", start)
    if end < 0:
        raise RegexFaultError("the name of the group is not closed by a >", start)
    name = text[start + 4 : end]
    if not name.isidentifier():
        raise RegexFaultError(f"{name!r} cannot be the name of a group", start)
    return GroupStart(True, end + 1, name)
