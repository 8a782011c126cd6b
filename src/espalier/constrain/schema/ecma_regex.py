"""Regular expressions of JSON Schema: ECMA-262 with the flag `u`, as patterns.

An expression stands for the texts that it is found in, as `pattern` means it. Owns the syntax;
knows no JSON. What no pattern can express is refused: back-references, word boundaries,
look-behind, and look-ahead or anchors inside a repetition.
"""

from __future__ import annotations

from espalier.constrain.code_points import code_points, complement
from espalier.constrain.pattern import Literal, Pattern
from espalier.constrain.schema.ecma_anchors import Ahead, Anchor, Branch, Item, Row, Times, found_in
from espalier.constrain.simplified import char_class
from espalier.errors import UserInputError, shown

MAX_REGEX_CHARS = 10_000
MAX_GROUP_DEPTH = 30
MAX_REPEAT = 10_000

_DIGITS = ((0x30, 0x39),)
_WORD = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
# White space and line terminators of ECMA-262, section 12.2 and 12.3.
_SPACE = code_points(
    (ord(character), ord(character))
    for character in "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_LINE_ENDS = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))
_CLASSES = {
    "d": _DIGITS,
    "D": complement(_DIGITS),
    "w": _WORD,
    "W": complement(_WORD),
    "s": _SPACE,
    "S": complement(_SPACE),
}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}

Ranges = tuple[tuple[int, int], ...]


def parse_ecma_regex(source: str) -> Pattern:
    """The texts in which an expression is found anywhere; `^` and `$` are the text's ends.

    Raises UserInputError for one that is too long, not understood or not regular.
    """
    if len(source) > MAX_REGEX_CHARS:
        raise UserInputError(
            f"the regular expression has {len(source)} characters; at most {MAX_REGEX_CHARS} "
            "are allowed"
        )
    parser = _Parser(source)
    return found_in(parser.parse())


class _Parser:
    """Recursive descent over one expression."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._depth = 0

    def parse(self) -> Item:
        item = self._branches()
        if self._at < len(self._source):
            raise self._error("a ')' closes nothing")
        return item

    def _error(self, what: str) -> UserInputError:
        return UserInputError(
            f"the regular expression {shown(self._source)} has at character {self._at}: {what}"
        )

    def _next(self, text: str) -> bool:
        """Steps over `text` if it comes next."""
        if not self._source.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _take(self) -> str:
        if self._at >= len(self._source):
            raise self._error("it ends too early")
        self._at += 1
        return self._source[self._at - 1]

    def _branches(self) -> Item:
        self._depth += 1
        if self._depth > MAX_GROUP_DEPTH:
            raise self._error(f"more than {MAX_GROUP_DEPTH} groups inside each other")
        options = [self._row()]
        while self._next("|"):
            options.append(self._row())
        self._depth -= 1
        return Branch.of(options)

    def _row(self) -> Item:
        items: list[Item] = []
        while self._at < len(self._source) and self._source[self._at] not in "|)":
            atom = self._atom()
            bounds = self._bounds()
            if bounds is None:
                items.append(atom)
            elif isinstance(atom, (Anchor, Ahead)):
                raise self._error("an assertion cannot be repeated")
            else:
                items.append(Times.of(atom, *bounds))
        return Row.of(items)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._next(sign):
                self._end_of_quantifier()
                return bounds
        end = self._source.find("}", self._at)
        body = self._source[self._at + 1 : end]
        if not self._source.startswith("{", self._at) or end < 0 or not body[:1].isdecimal():
            return None
        low, comma, high = body.partition(",")
        if not (low.isascii() and low.isdecimal() and (not high or high.isdecimal())):
            return None
        self._at = end + 1
        lowest = int(low[:9])
        highest = lowest if not comma else int(high[:9]) if high else None
        if max(lowest, highest or 0) > MAX_REPEAT:
            raise self._error(f"more than {MAX_REPEAT} repetitions")
        if highest is not None and highest < lowest:
            raise self._error("the bounds of a repetition are in the wrong order")
        self._end_of_quantifier()
        return lowest, highest

    def _end_of_quantifier(self) -> None:
        self._next("?")  # lazy or not, the texts are the same
        if self._at < len(self._source) and self._source[self._at] in "*+?":
            raise self._error("a repetition is repeated without a group")

    def _atom(self) -> Item:
        character = self._take()
        if character == "(":
            return self._group()
        if character == "[":
            return char_class(code_points(self._class()))
        if character == "\\":
            return char_class(code_points(self._escape(in_class=False)))
        if character == ".":
            return char_class(complement(_LINE_ENDS))
        if character == "^":
            return Anchor.START
        if character == "$":
            return Anchor.END
        if character in "*+?" or (
            character == "{" and self._source[self._at : self._at + 1] in ","
        ):
            raise self._error("a repetition of nothing")
        return Literal(character)

    def _group(self) -> Item:
        negative = False
        ahead = False
        if self._next("?"):
            if self._next("=") or self._next("!"):
                ahead = True
                negative = self._source[self._at - 1] == "!"
            elif self._next("<") and self._source[self._at : self._at + 1] not in ("=", "!"):
                end = self._source.find(">", self._at)
                if end < 0 or not self._source[self._at : end].isidentifier():
                    raise self._error("a group's name is not closed")
                self._at = end + 1
            elif not self._next(":"):
                raise self._error("look-behind, flags and other extensions are not supported")
        inner = self._branches()
        if not self._next(")"):
            raise self._error("a group is not closed")
        return Ahead(inner, negative) if ahead else inner

    def _class(self) -> Ranges:
        negated = self._next("^")
        found: list[tuple[int, int]] = []
        while not self._next("]"):
            ranges = self._class_member()
            is_range = self._source.startswith("-", self._at) and self._source[
                self._at + 1 : self._at + 2
            ] not in ("]", "")
            if is_range:
                self._at += 1
                last = self._class_member()
                single = len(ranges) == len(last) == 1 and ranges[0][0] == ranges[0][1]
                if not single or last[0][0] != last[0][1] or last[0] < ranges[0]:
                    raise self._error("a range of characters is not from a lower to a higher one")
                ranges = ((ranges[0][0], last[0][0]),)
            found += ranges
        merged = code_points(found)
        return complement(merged) if negated else merged

    def _class_member(self) -> Ranges:
        character = self._take()
        if character == "\\":
            return self._escape(in_class=True)
        return ((ord(character), ord(character)),)

    def _escape(self, in_class: bool) -> Ranges:
        character = self._take()
        if character in _CLASSES:
            return _CLASSES[character]
        code = _CONTROLS.get(character)
        if character == "b" and in_class:
            code = 8
        elif character == "0" and not self._source[self._at : self._at + 1].isdecimal():
            code = 0
        elif character == "c" and self._source[self._at : self._at + 1].isascii():
            letter = self._take()
            code = ord(letter) % 32 if letter.isalpha() else None
        elif character == "x":
            code = self._hex(2)
        elif character == "u":
            code = self._unicode()
        elif code is None and not character.isalnum():
            code = ord(character)
        if code is None:
            raise self._error(f"the escape \\{character} is unknown or not supported")
        return ((code, code),)

    def _hex(self, length: int) -> int:
        digits = self._source[self._at : self._at + length]
        if len(digits) < length or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise self._error("a hexadecimal escape has other characters in it")
        self._at += length
        return int(digits, 16)

    def _unicode(self) -> int:
        if self._next("{"):
            length = self._source.find("}", self._at) - self._at
            code = self._hex(length) if 0 < length <= 6 else 0x110000
            if code > 0x10FFFF:
                raise self._error("a \\u{...} escape is no code point")
            self._at += 1
            return code
        code = self._hex(4)
        if 0xD800 <= code < 0xDC00 and self._next("\\u"):
            low = self._hex(4)
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
            self._at -= 6
        return code
