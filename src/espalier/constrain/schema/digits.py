"""Decimal numbers between bounds, digit by digit, as patterns.

Spelling: no leading zeros, no exponent, no sign but a minus before a magnitude that is not zero.
"""

from __future__ import annotations

from fractions import Fraction

from espalier.constrain.pattern import EMPTY, NOTHING, CharClass, Literal, Pattern, Repeat
from espalier.constrain.schema.construct import concat, either, repeat

DIGIT = CharClass(((0x30, 0x39),))
NONZERO = CharClass(((0x31, 0x39),))


def digit_range(low: int, high: int) -> Pattern:
    """One digit between two."""
    if low > high:
        return NOTHING
    return CharClass(((0x30 + low, 0x30 + high),)) if low < high else Literal(str(low))


def whole_numbers(low: int, high: int | None) -> Pattern:
    """Integers from `low` to `high`, both at least 0; no end where `high` is None."""
    if high is not None and high < low:
        return NOTHING
    first = str(low)
    if high is None:
        longer = concat((NONZERO, Repeat(DIGIT, len(first), None)))
        return either((_same_length(first, "9" * len(first)), longer))
    last = str(high)
    if len(first) == len(last):
        return _same_length(first, last)
    options = [_same_length(first, "9" * len(first))]
    if len(last) - len(first) > 1:
        options.append(concat((NONZERO, repeat(DIGIT, len(first), len(last) - 2))))
    options.append(_same_length("1" + "0" * (len(last) - 1), last))
    return either(options)


def _same_length(low: str, high: str) -> Pattern:
    """Digits from `low` to `high`, all as many."""
    if not low:
        return EMPTY
    if set(low) == {"0"} and set(high) == {"9"}:
        return repeat(DIGIT, len(low), len(low))
    first, last = int(low[0]), int(high[0])
    if first == last:
        return concat((Literal(low[0]), _same_length(low[1:], high[1:])))
    options = []
    zeros, nines = "0" * (len(low) - 1), "9" * (len(low) - 1)
    if low[1:] != zeros:
        options.append(concat((Literal(low[0]), _same_length(low[1:], nines))))
        first += 1
    if high[1:] != nines:
        options.append(concat((Literal(high[0]), _same_length(zeros, high[1:]))))
        last -= 1
    if first <= last:
        options.append(concat((digit_range(first, last), repeat(DIGIT, len(zeros), len(zeros)))))
    return either(options)


def fraction_digits(number: Fraction) -> str:
    """Digits after the point of a decimal fraction between 0 and 1."""
    digits = []
    while number:
        number *= 10
        digit = number.numerator // number.denominator
        digits.append(str(digit))
        number -= digit
    return "".join(digits)


def magnitudes(
    low: Fraction, low_open: bool, high: Fraction | None, high_open: bool, max_places: int
) -> Pattern:
    """Decimals between two that are at least 0, with up to `max_places` digits after the point."""
    low_whole, low_digits = int(low), fraction_digits(low - int(low))
    if high is None:
        inner = concat((whole_numbers(low_whole + 1, None), _places(max_places)))
        edge = _edge(low_digits, low_open, None, False, max_places)
        return either((concat((Literal(str(low_whole)), edge)), inner))
    high_whole, high_digits = int(high), fraction_digits(high - int(high))
    if low_whole == high_whole:
        edge = _edge(low_digits, low_open, (high_digits, high_open), True, max_places)
        return concat((Literal(str(low_whole)), edge))
    lowest = _edge(low_digits, low_open, None, False, max_places)
    highest = _edge("", False, (high_digits, high_open), True, max_places)
    between = whole_numbers(low_whole + 1, high_whole - 1)
    return either(
        (
            concat((Literal(str(low_whole)), lowest)),
            concat((between, _places(max_places))),
            concat((Literal(str(high_whole)), highest)),
        )
    )


def _places(max_places: int) -> Pattern:
    """Nothing, or a point with digits."""
    if max_places == 0:
        return EMPTY
    return repeat(concat((Literal("."), repeat(DIGIT, 1, max_places))), 0, 1)


def _edge(
    low: str, low_open: bool, high: tuple[str, bool] | None, has_high: bool, max_places: int
) -> Pattern:
    """Fractions (with their point, or none at all) between bounds given by their digits."""
    high_digits, high_open = high if high is not None else ("", False)
    bounds = _Fractions(low, low_open, high_digits, high_open, max_places)
    after_point = bounds.rest(0, True, has_high, False)
    options = [concat((Literal("."), after_point))] if max_places else []
    if bounds.may_end(0, True, has_high):
        options.append(EMPTY)
    return either(options)


class _Fractions:
    """Digits after a point, between two fractions."""

    def __init__(self, low: str, low_open: bool, high: str, high_open: bool, places: int) -> None:
        self._low = low
        self._high = high
        self._low_open = low_open
        self._high_open = high_open
        self._places = places

    def may_end(self, index: int, at_low: bool, at_high: bool) -> bool:
        """A number that equals the bounds as far as said, and has no more digits, is inside."""
        if at_low and (self._low_open or self._low[index:].strip("0")):
            return False
        return not (at_high and self._high_open and not self._high[index:].strip("0"))

    def rest(self, index: int, at_low: bool, at_high: bool, may_be_empty: bool = True) -> Pattern:
        """Digits from an index on; `at_low`, `at_high`: those before are a bound's own."""
        left = self._places - index
        if not at_low and not at_high:
            return repeat(DIGIT, 0 if may_be_empty else 1, left)
        options: list[Pattern] = []
        if may_be_empty and self.may_end(index, at_low, at_high):
            options.append(EMPTY)
        if left > 0:
            options += self._digit(index, at_low, at_high)
        return either(options)

    def _digit(self, index: int, at_low: bool, at_high: bool) -> list[Pattern]:
        low = int(self._low[index]) if at_low and index < len(self._low) else 0
        high = 9
        if at_high:
            high = int(self._high[index]) if index < len(self._high) else 0
        options = []
        if at_low and at_high and low == high:
            return [concat((Literal(str(low)), self.rest(index + 1, True, True)))]
        if low > high:
            return []
        if at_low:
            options.append(concat((Literal(str(low)), self.rest(index + 1, True, False))))
        if at_high:
            options.append(concat((Literal(str(high)), self.rest(index + 1, False, True))))
        middle = digit_range(low + at_low, high - at_high)
        options.append(concat((middle, self.rest(index + 1, False, False))))
        return options
