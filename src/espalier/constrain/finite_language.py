"""Patterns with few texts, and which these are; and the other way, the pattern of given texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from espalier.constrain.code_points import num_characters
from espalier.constrain.membership import is_member
from espalier.constrain.pattern import (
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)
from espalier.constrain.simplified import alternation
from espalier.errors import UserInputError, shown

MAX_CHARACTERS = 65_536  # of all texts of a language together

_Texts = list[str] | None  # each once, in order; None: too many


def finite_language(pattern: Pattern, limit: int) -> tuple[str, ...] | None:
    """The texts of a pattern, each once, where it has at most `limit`; else None.

    They are in the order of the alternatives that they come from, characters of a class by code
    point, fewer repeats first. None as well where they have more than MAX_CHARACTERS characters
    together, and for an intersection or difference of languages of which neither side that could
    be listed is short enough.
    """
    texts = _texts(pattern, limit)
    return None if texts is None else tuple(texts)


def choices_pattern(texts: Sequence[str]) -> Pattern:
    """The pattern of some texts. Raises UserInputError for none, or what is no Unicode text."""
    if not texts:
        raise UserInputError("There are no choices; at least one text is needed.")
    for text in texts:
        if not isinstance(text, str):
            raise UserInputError(f"A choice is {shown(text)}; texts are allowed.")
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise UserInputError(
                f"The choice {shown(text)} has half of a surrogate pair, which no output can have; "
                "whole characters are allowed."
            )
    return alternation([Literal(text) for text in texts])


def _texts(pattern: Pattern, limit: int) -> _Texts:
    if isinstance(pattern, Literal):
        return _limited([pattern.text], limit)
    if isinstance(pattern, CharClass):
        if num_characters(pattern.ranges) > limit + 2048:  # surrogates, which are not counted
            return None
        characters = (chr(code) for low, high in pattern.ranges for code in range(low, high + 1))
        return _limited((one for one in characters if not "\ud800" <= one <= "\udfff"), limit)
    if isinstance(pattern, Concat):
        return _concatenated([_texts(part, limit) for part in pattern.parts], limit)
    if isinstance(pattern, Alternation):
        options = [_texts(option, limit) for option in pattern.options]
        listed = [texts for texts in options if texts is not None]
        if len(listed) < len(options):
            return None
        return _limited((text for texts in listed for text in texts), limit)
    if isinstance(pattern, Repeat):
        return _repeated(pattern, limit)
    return _selected(pattern, limit)


def _concatenated(parts: Sequence[_Texts], limit: int) -> _Texts:
    if any(texts == [] for texts in parts):
        return []
    found: list[str] = [""]
    for texts in parts:
        if texts is None:
            return None
        longer = _limited((before + text for before in found for text in texts), limit)
        if longer is None:
            return None
        found = longer
    return found


def _repeated(pattern: Repeat, limit: int) -> _Texts:
    inner = _texts(pattern.inner, limit) if pattern.high != 0 else [""]
    if inner is None:
        return None
    if not any(inner):  # no text, or the empty one alone
        return [""] if inner or pattern.low == 0 else []
    if pattern.high is None or pattern.high - pattern.low >= limit:
        return None
    if len(inner) == 1:
        counts = range(pattern.low, pattern.high + 1)
        if len(inner[0]) * sum(counts) > MAX_CHARACTERS:
            return None
        return _limited((inner[0] * count for count in counts), limit)
    if pattern.low >= limit:  # two texts alone make one more with every round
        return None
    rounds = _concatenated([inner] * pattern.low, limit)
    found = rounds
    for _ in range(pattern.high - pattern.low):
        if rounds is None or found is None:
            return None
        rounds = _concatenated([rounds, inner], limit)
        found = None if rounds is None else _limited((*found, *rounds), limit)
    return found


def _selected(pattern: Both | Without, limit: int) -> _Texts:
    left = _texts(pattern.left, limit)
    if isinstance(pattern, Without):
        if left is None:
            return None
        return [text for text in left if not is_member(pattern.right, text)]
    if left is not None:
        return [text for text in left if is_member(pattern.right, text)]
    right = _texts(pattern.right, limit)
    if right is None:
        return None
    return [text for text in right if is_member(pattern.left, text)]


def _limited(texts: Iterable[str], limit: int) -> _Texts:
    """Texts without those that were there before, None where they are too many or too long."""
    found: dict[str, None] = {}
    num_characters = 0
    for text in texts:
        if text not in found:
            found[text] = None
            num_characters += len(text)
            if len(found) > limit or num_characters > MAX_CHARACTERS:
                return None
    return list(found)
