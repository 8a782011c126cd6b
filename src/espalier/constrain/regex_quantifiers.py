"""Quantifiers of regular expressions: `*`, `+`, `?` and counts in braces."""

from __future__ import annotations

import re
from typing import NamedTuple

from espalier.constrain.regex_fault import RegexFaultError

MAX_REPEAT_COUNT = 65_536

_COUNTS = re.compile(r"\{([0-9]*)(?:(,)([0-9]*))?\}")
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class Quantifier(NamedTuple):
    """At least `low`, at most `high` times (None: no limit); the text goes on at `end`."""

    low: int
    high: int | None
    end: int


def parse_quantifier(text: str, start: int) -> Quantifier | None:
    """The quantifier at `start`, where `*`, `+`, `?` or `{` is; None for a brace that is a literal.

    A lazy one is the same: it changes which text a search finds, not which texts match as a whole.
    Raises RegexFaultError for possessive ones and for counts out of order or above the limit.
    """
    sign = _SIGNS.get(text[start])
    if sign is not None:
        low, high = sign
        end = start + 1
    else:
        found = _COUNTS.match(text, start)
        if found is None or found.end() == start + 2:
            return None
        low = _count(found.group(1), start) or 0
        high = _count(found.group(3) if found.group(2) else found.group(1), start)
        end = found.end()
        if high is not None and high < low:
            raise RegexFaultError(f"{found.group()} has its counts in the wrong order", start)
    following = text[end : end + 1]
    if following == "+":
        raise RegexFaultError(
            f"{text[start : end + 1]} is a possessive quantifier, which is not supported: what it "
            "matches depends on the search, not on the text alone; leave out the second sign",
            start,
        )
    return Quantifier(low, high, end + 1 if following == "?" else end)


def _count(digits: str, position: int) -> int | None:
    if not digits:
        return None
    # Python refuses to convert very long numbers.
    if len(digits.lstrip("0")) > len(str(MAX_REPEAT_COUNT)) or int(digits) > MAX_REPEAT_COUNT:
        raise RegexFaultError(
            f"the count {shown_count(digits)} is above {MAX_REPEAT_COUNT}", position
        )
    return int(digits)


def shown_count(digits: str) -> str:
    """A count as a message shows it."""
    return digits if len(digits) <= 20 else f"{digits[:20]}..."
