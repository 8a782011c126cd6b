"""Patterns built in their simplest form, so that few states are needed to match them.

The functions have the meaning of the classes of `pattern` that they are named after. Knows no
syntax that patterns are written in.
"""

from __future__ import annotations

from collections.abc import Sequence

from espalier.constrain.code_points import code_points, num_characters
from espalier.constrain.pattern import (
    EMPTY,
    NOTHING,
    Alternation,
    CharClass,
    CodePoints,
    Concat,
    Literal,
    Pattern,
    Repeat,
)

# Options of one character each become a class; up to this many keep the order they were written in.
_MAX_ORDERED_CHARACTERS = 64
_MAX_COPIED_CHARACTERS = 256  # a literal that is repeated this often in all is written out


def char_class(ranges: CodePoints) -> Pattern:
    """One character of ranges that `code_points` made."""
    if not ranges:
        return NOTHING
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return Literal(chr(ranges[0][0]))
    return CharClass(ranges)


def concat(parts: Sequence[str | Pattern]) -> Pattern:
    """Parts one after the other: a text stands for itself, neighbouring texts become one."""
    if len(parts) == 1:
        return Literal(parts[0]) if isinstance(parts[0], str) else parts[0]
    kept: list[Pattern] = []
    texts: list[str] = []  # that the last of kept is followed by
    for piece in _flat(parts):
        if isinstance(piece, str):
            texts.append(piece)
        elif isinstance(piece, Literal):
            if piece.text:
                texts.append(piece.text)
        elif isinstance(piece, Alternation) and not piece.options:
            return NOTHING
        else:
            if texts:
                kept.append(Literal("".join(texts)))
                texts = []
            kept.append(piece)
    if texts:
        kept.append(Literal("".join(texts)))
    if len(kept) == 1:
        return kept[0]
    return Concat(tuple(kept)) if kept else EMPTY


def alternation(options: Sequence[Pattern]) -> Pattern:
    """Any of the options, in their order."""
    if len(options) == 1:
        return options[0]
    kept: list[Pattern] = []
    texts: set[str] = set()
    for option in options:
        for choice in option.options if isinstance(option, Alternation) else (option,):
            if isinstance(choice, Literal):
                if choice.text in texts:
                    continue
                texts.add(choice.text)
            merged = _one_class(kept[-1], choice) if kept else None
            if merged is None:
                kept.append(choice)
            else:
                kept[-1] = merged
    return kept[0] if len(kept) == 1 else Alternation(tuple(kept))


def repeat(inner: Pattern, low: int, high: int | None) -> Pattern:
    """`low` to `high` times `inner`; `high` None is without end."""
    if high == 0 or inner == EMPTY:
        return EMPTY
    if inner == NOTHING:
        return NOTHING if low else EMPTY
    if low == high == 1:
        return inner
    if low == high and isinstance(inner, Literal):
        if len(inner.text) * low <= _MAX_COPIED_CHARACTERS:
            return Literal(inner.text * low)
    elif isinstance(inner, Repeat) and inner.low <= 1:
        if inner.high is None:  # any number of any number
            return Repeat(inner.inner, inner.low * low, None)
        if inner.high == 1 and inner.low == 0:
            return Repeat(inner.inner, 0, high)
    return Repeat(inner, low, high)


def _flat(parts: Sequence[str | Pattern]) -> Sequence[str | Pattern]:
    if not any(isinstance(part, Concat) for part in parts):
        return parts
    flat: list[str | Pattern] = []
    for part in parts:
        if isinstance(part, Concat):
            flat.extend(part.parts)
        else:
            flat.append(part)
    return flat


def _one_class(left: Pattern, right: Pattern) -> Pattern | None:
    """Both in one class, where each is one character and no order is lost that is looked at."""
    first, second = _ranges(left), _ranges(right)
    if not first or not second:
        return None
    if first[-1][1] < second[0][0] or num_characters(first + second) > _MAX_ORDERED_CHARACTERS:
        return char_class(code_points(first + second))
    return None


def _ranges(pattern: Pattern) -> CodePoints:
    if isinstance(pattern, CharClass):
        return pattern.ranges
    if isinstance(pattern, Literal) and len(pattern.text) == 1:
        return ((ord(pattern.text), ord(pattern.text)),)
    return ()
