r"""Character classes of regular expressions: \d, \w, \s and their like, and `[...]`.

Which characters \d, \w and \s are is asked of Python's own `re`, once, when first needed.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from espalier.constrain.code_points import code_points, complement
from espalier.constrain.pattern import CodePoints, Pattern
from espalier.constrain.regex_case import with_other_cases
from espalier.constrain.regex_escapes import parse_class_escape
from espalier.constrain.regex_fault import RegexFaultError
from espalier.constrain.regex_flags import ASCII, IGNORE_CASE
from espalier.constrain.simplified import char_class

# The text of a class, found first so that classes that were read before need no parsing.
# A ] in the first place is a member.
_CLASS_TEXT = re.compile(r"\[(?:\^\]|\^(?!\])|\]|(?![\^\]]))[^\]\\]*(?:\\.[^\]\\]*)*\]", re.DOTALL)
_CATEGORIES = frozenset("dDwWsS")
# The planes of letters, digits and spaces end before; the test walks all code points.
_END_OF_CATEGORIES = 0x40000


@lru_cache(maxsize=32)
def category(letter: str, flags: int) -> Pattern:
    r"""The class of an escape: one of d, D, w, W, s, S."""
    return char_class(_category_ranges(letter, flags & ASCII))


def parse_class(text: str, start: int, flags: int) -> tuple[Pattern, int]:
    """The class whose `[` is at `start`, and the place behind its `]`. Raises RegexFaultError."""
    found = _CLASS_TEXT.match(text, start)
    if found is None:
        raise RegexFaultError("the [ is not closed by a ]", start)
    try:
        return _class_of(found.group(), flags & (ASCII | IGNORE_CASE)), found.end()
    except RegexFaultError as fault:
        raise RegexFaultError(fault.reason, start + fault.position) from None


@lru_cache(maxsize=1024)
def _class_of(text: str, flags: int) -> Pattern:
    """The class of a text from its `[` to its `]`."""
    ranges: list[tuple[int, int]] = []
    categories: list[tuple[int, int]] = []  # have no other cases in `re`
    is_negated = text.startswith("[^")
    position = first = 2 if is_negated else 1
    while position == first or text[position] != "]":
        low, end = _member(text, position, flags)
        if text[end] != "-" or text[end + 1] == "]":
            (categories if _is_category(text, position) else ranges).extend(low)
        else:
            high, last_end = _member(text, end + 1, flags)
            written = text[position:last_end]
            # A member that is one character has one range; \d and its like are no ends of ranges.
            if _is_category(text, position) or _is_category(text, end + 1):
                raise RegexFaultError(f"the range {written} has a class as an end", position)
            if low[0][0] > high[0][0]:
                raise RegexFaultError(f"the range {written} ends before it begins", position)
            ranges.append((low[0][0], high[0][0]))
            end = last_end
        position = end
    found = code_points(ranges)
    if flags & IGNORE_CASE:
        found = with_other_cases(found, bool(flags & ASCII))
    if categories:
        found = code_points((*found, *categories))
    return char_class(complement(found) if is_negated else found)


def _member(text: str, position: int, flags: int) -> tuple[CodePoints, int]:
    """What one member of a class stands for, and the place behind it."""
    if text[position] != "\\":
        code_point = ord(text[position])
        return ((code_point, code_point),), position + 1
    if _is_category(text, position):
        return _category_ranges(text[position + 1], flags & ASCII), position + 2
    code_point, end = parse_class_escape(text, position)
    return ((code_point, code_point),), end


def _is_category(text: str, position: int) -> bool:
    return text[position] == "\\" and text[position + 1] in _CATEGORIES


@lru_cache(maxsize=32)
def _category_ranges(letter: str, ascii_only: int) -> CodePoints:
    if letter.isupper():
        return complement(_category_ranges(letter.lower(), ascii_only))
    expression = re.compile(rf"\{letter}+", re.ASCII if ascii_only else re.UNICODE)
    # The text whose character at index i has the code point i.
    characters = np.arange(_END_OF_CATEGORIES, dtype="<u4").tobytes()
    text = characters.decode("utf-32-le", "surrogatepass")
    spans = (found.span() for found in expression.finditer(text))
    return code_points((start, end - 1) for start, end in spans)
