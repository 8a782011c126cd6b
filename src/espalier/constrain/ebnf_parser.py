"""EBNF text to rules: the common part of what SGLang, xgrammar and llama.cpp (GBNF) read.

Rules are `name ::= ...`, with "texts", [classes], any character `.`, groups, `|`, the repeats
`* + ? {n} {n,} {n,m}` and comments from `#`. A rule goes on until the next `name ::=`. Extensions
of single programs (lookahead, token names) are refused by name.
"""

from __future__ import annotations

import re

from espalier.constrain.ebnf_tree import (
    Choice,
    Expression,
    OneOf,
    Rule,
    Rules,
    Sequence,
    Text,
    Times,
)
from espalier.constrain.pattern import CodePoints
from espalier.errors import CapacityError, UnsupportedError, UserInputError

MAX_EBNF_CHARS = 256 << 10
MAX_NESTING = 50
MAX_REPEATS = 10_000

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\r\n]*)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RULE = re.compile(rf"({_NAME.pattern})[ \t\r\n]*::=")
_COUNTS = re.compile(r"\{\s*(\d*)\s*(?:(,)\s*(\d*)\s*)?\}", re.ASCII)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "b": "\b", "0": "\0"}
_HEX = {"x": re.compile("[0-9A-Fa-f]{2}"), "u": re.compile("[0-9A-Fa-f]{4}"),
        "U": re.compile("[0-9A-Fa-f]{8}")}  # fmt: skip
_EXTENSIONS = {
    "(=": "lookahead assertions",
    "<": "names of special tokens; write what the token spells as a text",
    "!": "negated tokens",
    "'": "texts in single quotes; use double quotes",
    "/": "regular expressions; use classes and repeats",
    "-": "exceptions; use a negated class",
}


def parse_ebnf(text: str) -> Rules:
    """The rules by name, in order. Raises UserInputError, UnsupportedError or CapacityError."""
    if len(text) > MAX_EBNF_CHARS:
        raise CapacityError(
            f"The EBNF grammar has {len(text)} characters; at most {MAX_EBNF_CHARS} are allowed."
        )
    return _Parser(text).rules()


class _Parser:
    """Where reading stands in one grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def rules(self) -> Rules:
        rules: Rules = {}
        self._skip_space()
        while self._at < len(self._text):
            start = _RULE.match(self._text, self._at)
            if start is None:
                raise self._error("a rule, `name ::= ...`, is expected")
            if start[1] in rules:
                raise self._error(f"the rule {start[1]!r} is defined twice")
            self._at = start.end()
            self._skip_space()
            rules[start[1]] = self._choice(0)
            self._skip_space()
        return rules

    def _choice(self, depth: int) -> Expression:
        if depth > MAX_NESTING:
            raise self._error(f"groups are nested more than {MAX_NESTING} deep")
        options = [self._sequence(depth)]
        while self._text.startswith("|", self._at):
            self._at += 1
            self._skip_space()
            options.append(self._sequence(depth))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, depth: int) -> Expression:
        parts: list[Expression] = []
        while (
            self._at < len(self._text)
            and self._text[self._at] not in "|)"
            and _RULE.match(self._text, self._at) is None
        ):
            parts.append(self._repeats(self._single(depth)))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _single(self, depth: int) -> Expression:
        character = self._text[self._at]
        for sign, what in _EXTENSIONS.items():
            if self._text.startswith(sign, self._at):
                raise UnsupportedError(f"{self._place()}: EBNF here does not know {what}.")
        name = _NAME.match(self._text, self._at)
        if name is not None:
            self._at = name.end()
            return Rule(name[0])
        self._at += 1
        if character == '"':
            return self._literal()
        if character == "[":
            return OneOf(self._class())
        if character == ".":
            return OneOf(_without_surrogates([(0, 0x10FFFF)]))
        if character == "(":
            self._skip_space()
            inner = self._choice(depth + 1)
            if not self._text.startswith(")", self._at):
                raise self._error("a closing parenthesis is expected")
            self._at += 1
            return inner
        self._at -= 1
        raise self._error(f"{character!r} is not expected")

    def _repeats(self, inner: Expression) -> Expression:
        """What follows a single expression: repeats, even repeats of repeats, and space."""
        for _ in range(MAX_NESTING):
            counts = _COUNTS.match(self._text, self._at)
            sign = self._text[self._at : self._at + 1]
            if sign and sign in "*+?":
                low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[sign]
                inner = Times(inner, low, high)
                self._at += 1
            elif counts is not None:
                inner = self._counted(inner, counts)
                self._at = counts.end()
            elif sign == "{":
                raise self._error("a count such as {2}, {2,} or {2,5} is expected")
            else:
                self._skip_space()
                return inner
        raise self._error(f"more than {MAX_NESTING} repeats of repeats")

    def _counted(self, inner: Expression, counts: re.Match[str]) -> Times:
        if not counts[1] and not counts[3]:
            raise self._error("a count such as {2}, {2,} or {2,5} is expected")
        low = self._number(counts[1] or "0")
        high = low if counts[2] is None else self._number(counts[3]) if counts[3] else None
        if high is not None and low > high:
            raise self._error(f"the count {counts[0]} has no number between its bounds")
        return Times(inner, low, high)

    def _number(self, digits: str) -> int:
        if len(digits) > 9 or int(digits) > MAX_REPEATS:
            raise CapacityError(
                f"{self._place()}: a count is {digits[:20]}; at most {MAX_REPEATS} is allowed."
            )
        return int(digits)

    def _literal(self) -> Text:
        characters: list[str] = []
        while not self._text.startswith('"', self._at):
            characters.append(self._character("the closing quote"))
            if "\ud800" <= characters[-1] <= "\udfff":
                raise self._error("a surrogate is no character")
        self._at += 1
        return Text("".join(characters))

    def _class(self) -> CodePoints:
        is_negated = self._text.startswith("^", self._at)
        self._at += is_negated
        ranges: list[tuple[int, int]] = []
        while not self._text.startswith("]", self._at):
            low = high = ord(self._character("the closing bracket"))
            if (
                self._text.startswith("-", self._at)
                and self._text[self._at + 1 : self._at + 2] != "]"
            ):
                self._at += 1
                high = ord(self._character("the end of a range"))
            if low > high:
                raise self._error("a range of a class runs backwards")
            ranges.append((low, high))
        self._at += 1
        found = _without_surrogates(_complement(ranges) if is_negated else ranges)
        if not found:
            raise self._error("a class holds no character")
        return found

    def _character(self, missing: str) -> str:
        """A character of a text or class, escaped or not."""
        character = self._text[self._at : self._at + 1]
        if not character or character == "\n":
            raise self._error(f"{missing} is missing")
        self._at += 1
        if character != "\\":
            return character
        escape = self._text[self._at : self._at + 1]
        self._at += 1
        if escape in _HEX:
            digits = _HEX[escape].match(self._text, self._at)
            if digits is None or int(digits[0], 16) > 0x10FFFF:
                raise self._error(f"\\{escape} needs the hexadecimal digits of a character")
            self._at = digits.end()
            return chr(int(digits[0], 16))
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        if escape and not escape.isalnum() and escape.isascii() and escape.isprintable():
            return escape
        raise self._error(f"the escape \\{escape} is not known")

    def _skip_space(self) -> None:
        found = _SPACE.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _place(self) -> str:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        return f"The EBNF grammar, line {line}, column {column}"

    def _error(self, told: str) -> UserInputError:
        return UserInputError(f"{self._place()}: {told}.")


def _complement(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found, start = [], 0
    for low, high in sorted(ranges):
        if start < low:
            found.append((start, low - 1))
        start = max(start, high + 1)
    if start <= 0x10FFFF:
        found.append((start, 0x10FFFF))
    return found


def _without_surrogates(ranges: list[tuple[int, int]]) -> CodePoints:
    """Sorted and disjoint ranges of Unicode scalar values."""
    surrogates_too = [*_complement(ranges), (0xD800, 0xDFFF)]
    return tuple(_complement(surrogates_too))
