"""Strings as JSON text: one canonical spelling, and all spellings.

Canonical: the shortest standard escape where one is needed (quotation mark, backslash, controls),
every other character as itself. Because a text has one canonical spelling, a pattern of texts maps
to the pattern of their spellings node by node, also where it subtracts or intersects.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from espalier.constrain.code_points import code_points
from espalier.constrain.pattern import (
    ANY_TEXT,
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)
from espalier.constrain.schema.construct import either
from espalier.errors import UserInputError, shown

_ESCAPED = {code: json.dumps(chr(code))[1:-1] for code in (*range(0x20), ord('"'), ord("\\"))}

_HEX = ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66))


def _letters(letters: str) -> CharClass:
    return CharClass(code_points((ord(letter), ord(letter)) for letter in letters))


def _free_character() -> Pattern:
    """One character of a string in any spelling; surrogates only in pairs."""
    digit = CharClass(_HEX)
    literal = CharClass(((0x20, 0x21), (0x23, 0x5B), (0x5D, 0xD7FF), (0xE000, 0x10FFFF)))
    below = _letters("0123456789abcefABCEF")
    unit = either(
        (
            Concat((below, digit, digit, digit)),
            Concat((_letters("dD"), CharClass(((0x30, 0x37),)), digit, digit)),
            Concat(
                (
                    *(_letters("dD"), _letters("89abAB"), digit, digit),
                    *(Literal("\\u"), _letters("dD"), _letters("cdefCDEF"), digit, digit),
                )
            ),
        )
    )
    escape = either((_letters('"\\/bfnrt'), Concat((Literal("u"), unit))))
    return either((literal, Concat((Literal("\\"), escape))))


FREE_CHARACTER = _free_character()
_QUOTE = Literal('"')
FREE_STRING = Concat((_QUOTE, Repeat(FREE_CHARACTER, 0, None), _QUOTE))


def free_string(low: int, high: int | None) -> Pattern:
    """JSON strings of `low` to `high` characters in any spelling."""
    if (low, high) == (0, None):
        return FREE_STRING
    return Concat((_QUOTE, Repeat(FREE_CHARACTER, low, high), _QUOTE))


def string_text(text: str) -> str:
    """A string as canonical JSON text. Raises UserInputError for one with lone surrogates."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UserInputError(
            f"JSON schema: the string {shown(text)} has half a surrogate pair; no output can."
        )
    return f'"{text.translate(_ESCAPED)}"'


def quoted(pattern: Pattern) -> Pattern:
    """JSON strings, canonically spelled, of the texts of a pattern."""
    if isinstance(pattern, Literal):
        return Literal(string_text(pattern.text))
    if isinstance(pattern, Alternation) and all(
        isinstance(option, Literal) for option in pattern.options
    ):
        return either(quoted(option) for option in pattern.options)
    inner = escaped(pattern)
    parts = inner.parts if isinstance(inner, Concat) else (inner,)
    return Concat((_QUOTE, *parts, _QUOTE))


def escaped(pattern: Pattern) -> Pattern:
    """Canonical spellings of the texts of a pattern, without quotation marks."""
    if isinstance(pattern, Literal):
        return Literal(string_text(pattern.text)[1:-1])
    if isinstance(pattern, CharClass):
        return _escaped_class(pattern)
    if isinstance(pattern, Concat):
        return Concat(tuple(map(escaped, pattern.parts)))
    if isinstance(pattern, Alternation):
        return Alternation(tuple(map(escaped, pattern.options)))
    if isinstance(pattern, Repeat):
        return Repeat(escaped(pattern.inner), pattern.low, pattern.high)
    if isinstance(pattern, Both):
        return Both(escaped(pattern.left), escaped(pattern.right))
    return Without(escaped(pattern.left), escaped(pattern.right))


def _escaped_class(pattern: CharClass) -> Pattern:
    texts = [
        text
        for code, text in _ESCAPED.items()
        if any(low <= code <= high for low, high in pattern.ranges)
    ]
    if not texts:
        return pattern
    plain = []
    for low, high in pattern.ranges:
        start = max(low, 0x20)
        for code in (0x22, 0x5C):
            if start <= code <= high:
                plain.append((start, code - 1))
                start = code + 1
        plain.append((start, high))
    kept = tuple((low, high) for low, high in plain if low <= high)
    return either((CharClass(kept), *map(Literal, texts)))


ANY_CANONICAL_STRING = quoted(ANY_TEXT)


def value_text(value: Any) -> str:
    """A number as a schema writes it: integers as such, all others in decimals or with exponent."""
    if isinstance(value, Decimal):
        if value == value.to_integral_value() and abs(value) < 10**15:
            return str(int(value))
        return str(value).replace("E", "e")
    return str(value)
