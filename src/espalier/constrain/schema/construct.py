"""Patterns put together: the same texts in fewer parts.

Knows Pattern and nothing of JSON. What plainly has no text becomes NOTHING. `simplified` does more,
as regexes need it: with its functions here a schema took a tenth longer, for the same automaton.
"""

from __future__ import annotations

from collections.abc import Iterable

from espalier.constrain.pattern import (
    EMPTY,
    NOTHING,
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)


def concat(parts: Iterable[Pattern]) -> Pattern:
    """Texts of the parts in a row; neighbouring literals become one."""
    found: list[Pattern] = []
    for part in parts:
        kind = type(part)
        items = part.parts if isinstance(part, Concat) else (part,)
        if kind is Alternation and part == NOTHING:
            return NOTHING
        if items and found and isinstance(items[0], Literal):
            last = found[-1]
            if isinstance(last, Literal):
                found[-1] = Literal(last.text + items[0].text)
                items = items[1:]
        found += items
    if len(found) > 1:
        found = [item for item in found if not (type(item) is Literal and item == EMPTY)]
    if not found:
        return EMPTY
    return found[0] if len(found) == 1 else Concat(tuple(found))


def led_by(text: str, pattern: Pattern) -> Pattern:
    """Texts of a pattern after a text."""
    if not text:
        return pattern
    if isinstance(pattern, Literal):
        return Literal(text + pattern.text)
    if isinstance(pattern, Concat):
        first = pattern.parts[0]
        if isinstance(first, Literal):
            return Concat((Literal(text + first.text), *pattern.parts[1:]))
        return Concat((Literal(text), *pattern.parts))
    return Concat((Literal(text), pattern))


def either(options: Iterable[Pattern]) -> Pattern:
    """Texts of any option; equal literals are named once."""
    found: dict[object, Pattern] = {}
    for option in options:
        for item in option.options if isinstance(option, Alternation) else (option,):
            # Hashing a pattern would walk it; literals and shared parts are what repeats.
            found.setdefault(item.text if isinstance(item, Literal) else id(item), item)
    if len(found) == 1:
        return next(iter(found.values()))
    return Alternation(tuple(found.values()))


def repeat(inner: Pattern, low: int, high: int | None) -> Pattern:
    """`low` to `high` texts of `inner`; no text where `high` is below `low`."""
    if high is not None and high < low:
        return NOTHING
    if inner == NOTHING:
        return EMPTY if low == 0 else NOTHING
    if high == 0 or inner == EMPTY:
        return EMPTY
    return inner if (low, high) == (1, 1) else Repeat(inner, low, high)


def optional(inner: Pattern) -> Pattern:
    """Texts of `inner`, and the empty one."""
    return repeat(inner, 0, 1)


def both(left: Pattern, right: Pattern) -> Pattern:
    """Texts of both."""
    return NOTHING if NOTHING in (left, right) else Both(left, right)


def without(left: Pattern, right: Pattern) -> Pattern:
    """Texts of `left` that `right` lacks."""
    return left if NOTHING in (left, right) else Without(left, right)


def has_empty_text(pattern: Pattern) -> bool:
    """The empty text is among the texts."""
    if isinstance(pattern, Literal):
        return not pattern.text
    if isinstance(pattern, CharClass):
        return False
    if isinstance(pattern, Concat):
        return all(has_empty_text(part) for part in pattern.parts)
    if isinstance(pattern, Alternation):
        return any(has_empty_text(option) for option in pattern.options)
    if isinstance(pattern, Repeat):
        return pattern.low == 0 or has_empty_text(pattern.inner)
    right = has_empty_text(pattern.right)
    return has_empty_text(pattern.left) and (right if isinstance(pattern, Both) else not right)
