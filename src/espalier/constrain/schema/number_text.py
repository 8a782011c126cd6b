"""Numbers as JSON text: patterns of sets of numbers.

A number without bounds may have any spelling of JSON. One with bounds has no exponent and at most
15 significant digits next to a bound, so that reading it as a double never moves it across:
decimals of 15 digits are doubles apart.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from espalier.constrain.pattern import CharClass, Concat, Literal, Pattern, Repeat
from espalier.constrain.schema.construct import both, concat, either, optional, without
from espalier.constrain.schema.digits import DIGIT, NONZERO, magnitudes, whole_numbers
from espalier.constrain.schema.multiples import multiples_pattern
from espalier.constrain.schema.numbers import ANY_NUMBER, Numbers
from espalier.constrain.schema.refusal import NotRegular
from espalier.errors import UserInputError

MAX_DIGITS = 15  # significant ones of decimals that a double keeps apart
MAX_LISTED = 1_000  # multiples between bounds that are written one by one

_MINUS = Literal("-")
_NATURAL = either((Literal("0"), concat((NONZERO, Repeat(DIGIT, 0, None)))))
_DIGITS = Repeat(DIGIT, 1, None)
_SIGN = optional(CharClass(((0x2B, 0x2B), (0x2D, 0x2D))))
_EXPONENT = concat((CharClass(((0x45, 0x45), (0x65, 0x65))), _SIGN, _DIGITS))
FREE_NUMBER: Pattern = Concat(
    (optional(_MINUS), _NATURAL, optional(Concat((Literal("."), _DIGITS))), optional(_EXPONENT))
)
FREE_INTEGER: Pattern = either(
    (Literal("0"), Concat((optional(_MINUS), NONZERO, Repeat(DIGIT, 0, None))))
)
_ANY_INTEGER = Numbers(integral=True)


@lru_cache(maxsize=512)
def number_pattern(numbers: Numbers) -> Pattern:
    """Texts of the numbers of a set. Raises NotRegular, with no place, for some multiples."""
    if numbers == ANY_NUMBER:
        return FREE_NUMBER
    if numbers == _ANY_INTEGER:
        return FREE_INTEGER
    if numbers.values is not None:
        return either(Literal(text) for _, text in numbers.values)
    _check_size(numbers)
    try:
        return _ranged(numbers)
    except NotRegular:
        listed = _listed(numbers)
        if listed is None:
            raise
        return either(Literal(decimal_text(number)) for number in listed)


def _ranged(numbers: Numbers) -> Pattern:
    if numbers.integral:
        found = _integers(numbers)
    else:
        found = _decimals(numbers)
        if numbers.integral is False:
            found = both(found, _FRACTIONAL)
    for step in numbers.multiples:
        found = both(found, multiples_pattern(step, bool(numbers.integral)))
    for step in numbers.non_multiples:
        found = without(found, multiples_pattern(step, bool(numbers.integral)))
    if numbers.excluded:
        found = without(found, either(map(_spellings, sorted(numbers.excluded))))
    return found


_ANY_DIGITS = Repeat(DIGIT, 0, None)
_FRACTIONAL = concat((optional(_MINUS), _NATURAL, Literal("."), _ANY_DIGITS, NONZERO, _ANY_DIGITS))


def decimal_text(number: Fraction) -> str:
    """A decimal fraction as it is written without exponent, in as few digits as possible."""
    scale = 0
    while (number * 10**scale).denominator != 1:
        scale += 1
    digits = str(abs(int(number * 10**scale))).rjust(scale + 1, "0")
    sign = "-" if number < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _spellings(number: Fraction) -> Pattern:
    """Every way to write a number without exponent."""
    zeros: Pattern = Repeat(Literal("0"), 0, None)
    if number.denominator == 1:
        zeros = optional(concat((Literal(".0"), zeros)))
    return concat((Literal(decimal_text(number)), zeros))


def _check_size(numbers: Numbers) -> None:
    for bound in (numbers.low, numbers.high):
        if bound is not None and max(len(str(bound.denominator)), len(str(int(bound)))) > 400:
            raise UserInputError(
                "JSON schema: a bound of a number has more than 400 digits; fewer are allowed."
            )


def _listed(numbers: Numbers) -> list[Fraction] | None:
    """All numbers of a set that has few of them."""
    steps = list(numbers.multiples)
    if numbers.integral:
        steps.append(Fraction(1))
    if not steps or numbers.low is None or numbers.high is None:
        return None
    step = max(steps)
    first, last = -(-numbers.low // step), numbers.high // step
    if last - first > MAX_LISTED:
        return None
    return [step * k for k in range(first, last + 1) if numbers.has(step * k)]


def _integers(numbers: Numbers) -> Pattern:
    low, high = numbers.low, numbers.high
    lowest = highest = None
    if low is not None:
        lowest = -(-low.numerator // low.denominator)
        lowest += numbers.low_open and low.denominator == 1
    if high is not None:
        highest = high.numerator // high.denominator
        highest -= numbers.high_open and high.denominator == 1
    options = []
    if lowest is None or lowest < 0:
        nearest = 1 if highest is None or highest >= 0 else -highest
        farthest = None if lowest is None else -lowest
        options.append(concat((_MINUS, whole_numbers(nearest, farthest))))
    if highest is None or highest >= 0:
        options.append(whole_numbers(max(lowest or 0, 0), highest))
    return either(options)


def _decimals(numbers: Numbers) -> Pattern:
    low, high = numbers.low, numbers.high
    places = _max_places(numbers)
    options = []
    zero = Fraction(0)
    if low is None or low < 0:
        nearest, is_open = zero, True
        if high is not None and high <= 0:
            nearest, is_open = -high, numbers.high_open or high == 0
        farthest = None if low is None else -low
        negative = magnitudes(nearest, is_open, farthest, numbers.low_open, places)
        options.append(concat((_MINUS, negative)))
    if high is None or high >= 0:
        nearest, is_open = zero, False
        if low is not None and low >= 0:
            nearest, is_open = low, numbers.low_open
        options.append(magnitudes(nearest, is_open, high, numbers.high_open, places))
    return either(options)


def _max_places(numbers: Numbers) -> int:
    lengths = [len(str(abs(int(bound)))) for bound in (numbers.low, numbers.high) if bound]
    return max(MAX_DIGITS - max(lengths, default=1), 0)
