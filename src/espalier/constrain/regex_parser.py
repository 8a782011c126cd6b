r"""Regular expressions, in the syntax and meaning of Python's `re.fullmatch` on str, to patterns.

Owns the syntax and what of it is refused. Knows no bytes and no automaton. No recursion: open
groups are a list. `docs/regex.md` describes the dialect.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final

from espalier.constrain.code_points import complement
from espalier.constrain.pattern import ANY_CHARACTER, NOTHING, CharClass, Literal, Pattern
from espalier.constrain.regex_anchors import without_anchors
from espalier.constrain.regex_case import cases_of
from espalier.constrain.regex_classes import category, parse_class
from espalier.constrain.regex_escapes import parse_escape
from espalier.constrain.regex_fault import RegexFaultError
from espalier.constrain.regex_flags import (
    ASCII,
    DOT_ALL,
    IGNORE_CASE,
    MULTI_LINE,
    UNICODE,
    VERBOSE,
    InlineFlags,
)
from espalier.constrain.regex_groups import parse_group_start
from espalier.constrain.regex_limits import MAX_DEPTH, check_limits
from espalier.constrain.regex_quantifiers import parse_quantifier
from espalier.constrain.regex_tree import Anchor, Node, choice, is_pattern, rounds, sequence
from espalier.constrain.simplified import char_class
from espalier.errors import UserInputError, shown

MAX_REGEX_CHARS = 16_384
MAX_OPEN_GROUPS = 1_000

_PLAIN: Final = re.compile(r"[^\\\[()*+?.|^${]+")
_PLAIN_VERBOSE: Final = re.compile(r"[^\\\[()*+?.|^${ \t\n\r\v\f#]+")
_SPACE = re.compile(r"[ \t\n\r\v\f]+|#(?:[^\n\\]|\\.)*\n?", re.DOTALL)  # and comments
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_NEWLINE = CharClass(complement(((10, 10),)))
_LEVELS_PER_GROUP = 3  # a repeat of an alternation of sequences


def parse_regex(text: str) -> Pattern:
    """The texts that a regular expression matches as a whole, as `re.fullmatch` does.

    A pattern without texts is possible (`a^b`). Raises UserInputError for what Python's `re`
    refuses, for constructs that are not supported (look-around, back-references, word boundaries,
    conditionals, atomic groups, possessive quantifiers, anchors that hold in some rounds of a
    repeat only) and beyond the limits of length, nesting and counts.
    """
    return _parsed(text, _Parser)


def parse_search_regex(text: str) -> Pattern:
    """The texts that a regular expression matches in any text, as `re.search` does.

    Raises UserInputError as `parse_regex` does, and for every anchor.
    """
    return _parsed(text, _SearchParser)


def _parsed(text: str, parser: type[_Parser]) -> Pattern:
    if not isinstance(text, str):
        raise UserInputError(f"The regular expression is {shown(text)}; text is allowed.")
    if len(text) > MAX_REGEX_CHARS:
        raise UserInputError(
            f"The regular expression has {len(text)} characters; at most {MAX_REGEX_CHARS} are "
            "allowed."
        )
    try:
        return parser(text).parse()
    except RegexFaultError as fault:
        raise UserInputError(
            f"The regular expression {shown(text)} cannot be used: at position {fault.position}, "
            f"{fault.reason}."
        ) from None


class _Last(Enum):
    """What stands before a place in a sequence: what a quantifier there would repeat."""

    NOTHING = 0
    ITEM = 1
    ANCHOR = 2
    QUANTIFIER = 3


class _Group:
    """A group that is open: its finished options, and the parts of the one that is read."""

    __slots__ = ("last", "options", "outer_flags", "parts", "start")

    def __init__(self, start: int, outer_flags: int) -> None:
        self.start = start
        self.outer_flags = outer_flags
        self.options: list[Node] = []
        self.parts: list[str | Node] = []
        self.last = _Last.NOTHING

    def end_option(self) -> None:
        only = self.parts[0] if len(self.parts) == 1 else None
        if only is None or isinstance(only, str):
            only = sequence(self.parts)
        self.options.append(only)
        self.parts = []
        self.last = _Last.NOTHING


class _Parser:
    """One pass over the text of an expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._flags = 0
        self._groups = [_Group(0, 0)]
        self._deepest = 1
        self._names: set[str] = set()

    def parse(self) -> Pattern:
        text, length = self._text, len(self._text)
        while self._position < length:
            plain = (_PLAIN_VERBOSE if self._flags & VERBOSE else _PLAIN).match(
                text, self._position
            )
            if plain is None:
                self._read_special(text[self._position])
            else:
                self._position = plain.end()
                self._add_text(plain.group())
        if len(self._groups) > 1:
            raise RegexFaultError("the group is not closed by a )", self._groups[-1].start)
        return self._finished()

    def _finished(self) -> Pattern:
        self._groups[0].end_option()
        node = choice(self._groups[0].options)
        if self._deepest * _LEVELS_PER_GROUP > MAX_DEPTH:
            check_limits(node)
        if is_pattern(node):
            return node
        try:
            return without_anchors(node)
        except RecursionError:
            raise RegexFaultError("its anchors are nested too deep", 0) from None

    def _read_special(self, character: str) -> None:
        group = self._groups[-1]
        if character == "\\":
            self._read_escape()
        elif character == "[":
            node, self._position = parse_class(self._text, self._position, self._flags)
            self._add(node)
        elif character == "(":
            self._open()
        elif character == ")":
            self._close()
        elif character == "|":
            self._position += 1
            group.end_option()
        elif character == ".":
            self._position += 1
            self._add(ANY_CHARACTER if self._flags & DOT_ALL else _NOT_NEWLINE)
        elif character in "^$":
            self._position += 1
            self._add_anchor(character)
        elif character in "*+?{":
            self._read_quantifier(group)
        else:
            space = _SPACE.match(self._text, self._position)
            assert space is not None, "only verbose expressions have what is neither"
            self._position = space.end()

    def _read_escape(self) -> None:
        letter = self._text[self._position + 1 : self._position + 2]
        if letter in ("A", "Z"):
            self._position += 2
            self._add_anchor(letter)
        elif letter and letter in "dDwWsS":
            self._position += 2
            self._add(category(letter, self._flags & ASCII))
        else:
            code_point, self._position = parse_escape(self._text, self._position)
            self._add_text(chr(code_point))

    def _add_text(self, text: str) -> None:
        group = self._groups[-1]
        group.last = _Last.ITEM
        if self._flags & IGNORE_CASE or (not text.isascii() and _SURROGATE.search(text)):
            group.parts.extend(map(self._character, text))
        else:
            group.parts.append(text)

    def _character(self, character: str) -> str | Pattern:
        if "\ud800" <= character <= "\udfff":
            return NOTHING  # no text has one
        if self._flags & IGNORE_CASE:
            return _either_case(character, bool(self._flags & ASCII))
        return character

    def _add(self, node: Node) -> None:
        group = self._groups[-1]
        group.parts.append(node)
        group.last = _Last.ITEM

    def _add_anchor(self, sign: str) -> None:
        by_line = bool(self._flags & MULTI_LINE)
        if sign == "^":
            anchor = Anchor.LINE_START if by_line else Anchor.START
        elif sign == "$":
            anchor = Anchor.LINE_END if by_line else Anchor.LAST_LINE_END
        else:
            anchor = Anchor.START if sign == "A" else Anchor.END
        self._add(anchor)
        self._groups[-1].last = _Last.ANCHOR

    def _read_quantifier(self, group: _Group) -> None:
        start = self._position
        quantifier = parse_quantifier(self._text, start)
        if quantifier is None:
            self._position += 1
            self._add_text("{")
            return
        if group.last is not _Last.ITEM:
            raise RegexFaultError(_why_not_repeated(self._text[start], group.last), start)
        item = group.parts.pop()
        if isinstance(item, str):
            if len(item) > 1:
                group.parts.append(item[:-1])
            item = Literal(item[-1])
        group.parts.append(rounds(item, quantifier.low, quantifier.high, start))
        group.last = _Last.QUANTIFIER
        self._position = quantifier.end

    def _open(self) -> None:
        start = self._position
        found = parse_group_start(self._text, start)
        self._position = found.end
        if not found.opens:
            if found.flags is not None:
                self._set_global(found.flags, start)
            return
        if found.name:
            if found.name in self._names:
                raise RegexFaultError(f"a second group has the name {found.name!r}", start)
            self._names.add(found.name)
        if len(self._groups) > MAX_OPEN_GROUPS:
            raise RegexFaultError(
                f"groups are nested deeper than the {MAX_OPEN_GROUPS} that are allowed", start
            )
        self._groups.append(_Group(start, self._flags))
        self._deepest = max(self._deepest, len(self._groups))
        if found.flags is not None:
            self._flags = found.flags.applied_to(self._flags)

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise RegexFaultError("there is no group for the ) to close", self._position)
        self._position += 1
        group = self._groups.pop()
        group.end_option()
        self._flags = group.outer_flags
        self._add(choice(group.options))

    def _set_global(self, flags: InlineFlags, start: int) -> None:
        group = self._groups[-1]
        if len(self._groups) > 1 or group.options or group.last is not _Last.NOTHING:
            raise RegexFaultError(
                "flags of the whole expression stand at its beginning; for a part of it write "
                "(?flags:...)",
                start,
            )
        self._flags |= flags.added
        if self._flags & ASCII and self._flags & UNICODE:
            raise RegexFaultError("the flags a and u exclude each other", start)


class _SearchParser(_Parser):
    """Reads expressions for a search, in text whose end is not known yet."""

    def _add_anchor(self, sign: str) -> None:
        raise RegexFaultError(
            "an anchor asks what surrounds the match, of which the end is not known yet; write "
            "the characters that stand there, such as \\n",
            self._position - (1 if sign in "^$" else 2),
        )


@lru_cache(maxsize=4096)
def _either_case(character: str, ascii_only: bool) -> Pattern:
    return char_class(cases_of(character, ascii_only))


def _why_not_repeated(sign: str, last: _Last) -> str:
    if last is _Last.NOTHING:
        return f"there is nothing for the {sign} to repeat"
    if last is _Last.ANCHOR:
        return f"the {sign} cannot repeat an anchor"
    return f"the {sign} follows another quantifier; put what it repeats into a group"
