r"""Escapes of regular expressions that stand for one character: \n, \x41, \101, \N{...}, \."""

from __future__ import annotations

import unicodedata

from espalier.constrain.code_points import MAX_CODE_POINT
from espalier.constrain.regex_fault import RegexFaultError

_CONTROLS = {"a": 7, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
_HEX = frozenset("0123456789abcdefABCDEF")
_OCTAL = frozenset("01234567")
_DIGITS = frozenset("0123456789")
_BACKSPACE = 8


def parse_escape(text: str, start: int) -> tuple[int, int]:
    r"""The code point of the escape whose `\` is at `start` outside of classes, and its end.

    Raises RegexFaultError for what is no escape, and for word boundaries and back-references.
    """
    letter = text[start + 1 : start + 2]
    if letter in _DIGITS and letter != "0":
        return _octal_or_reference(text, start)
    if letter in ("b", "B"):
        raise RegexFaultError(
            rf"\{letter}, a word boundary, depends on the characters around it, which is not "
            "supported; write the characters that may stand there",
            start,
        )
    return _character(text, start, letter)


def parse_class_escape(text: str, start: int) -> tuple[int, int]:
    r"""The code point of the escape whose `\` is at `start` in a class, and its end.

    Raises RegexFaultError for what is no escape.
    """
    letter = text[start + 1]
    if letter == "b":
        return _BACKSPACE, start + 2
    if letter in _OCTAL:
        return _octal(text, start, _end_of(text, start + 2, 2, _OCTAL))
    return _character(text, start, letter)


def _character(text: str, start: int, letter: str) -> tuple[int, int]:
    if letter in _CONTROLS:
        return _CONTROLS[letter], start + 2
    if letter in _HEX_LENGTHS:
        return _hexadecimal(text, start, _HEX_LENGTHS[letter])
    if letter == "0":
        return _octal(text, start, _end_of(text, start + 2, 2, _OCTAL))
    if letter == "N":
        return _named(text, start)
    if letter == "":
        raise RegexFaultError(r"the \ at the end escapes nothing", start)
    if letter.isascii() and letter.isalnum():
        raise RegexFaultError(
            rf"\{letter} is no escape; to mean the letter itself, write it without the \ ", start
        )
    return ord(letter), start + 2


def _octal_or_reference(text: str, start: int) -> tuple[int, int]:
    """Three octal digits are a character; any other digits refer to a group."""
    end = _end_of(text, start + 1, 3, _OCTAL)
    if end == start + 4:
        return _octal(text, start, end)
    end = _end_of(text, start + 1, 2, _DIGITS)
    raise RegexFaultError(
        f"{text[start:end]} is a back-reference, which is not supported: no automaton remembers "
        "what a group matched; write the group's own expression again",
        start,
    )


def _octal(text: str, start: int, end: int) -> tuple[int, int]:
    value = int(text[start + 1 : end], 8)
    if value > 0o377:
        raise RegexFaultError(f"{text[start:end]} is above \\377", start)
    return value, end


def _hexadecimal(text: str, start: int, num_digits: int) -> tuple[int, int]:
    end = _end_of(text, start + 2, num_digits, _HEX)
    if end != start + 2 + num_digits:
        raise RegexFaultError(f"{text[start:end]} needs {num_digits} hexadecimal digits", start)
    value = int(text[start + 2 : end], 16)
    if value > MAX_CODE_POINT:
        raise RegexFaultError(f"{text[start:end]} is above \\U0010ffff", start)
    return value, end


def _named(text: str, start: int) -> tuple[int, int]:
    end = text.find("}", start)
    if text[start + 2 : start + 3] != "{" or end < 0:
        raise RegexFaultError(r"\N needs the name of a character in braces", start)
    name = text[start + 3 : end]
    try:
        return ord(unicodedata.lookup(name)), end + 1
    except (KeyError, TypeError):
        raise RegexFaultError(f"{name!r} is the name of no character", start) from None


def _end_of(text: str, start: int, limit: int, digits: frozenset[str]) -> int:
    end = start
    while end < start + limit and end < len(text) and text[end] in digits:
        end += 1
    return end
