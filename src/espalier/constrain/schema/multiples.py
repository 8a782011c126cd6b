"""Multiples of a number, by their last digits."""

from __future__ import annotations

from fractions import Fraction

from espalier.constrain.pattern import EMPTY, Literal, Pattern, Repeat
from espalier.constrain.schema.construct import concat, either, optional, repeat
from espalier.constrain.schema.digits import DIGIT, NONZERO
from espalier.constrain.schema.refusal import NotRegular

MAX_LAST_DIGITS = 4


def multiples_pattern(step: Fraction, is_whole: bool) -> Pattern:
    """Decimals (integers where `is_whole`) that are multiples of a step.

    For steps that only have the factors 2 and 5, whose multiples show in the last digits. Raises
    NotRegular for all others.
    """
    places = _places_of(step)
    whole = int(step * 10**places)
    last = _last_digits(whole)
    if places is None or last is None or (last > MAX_LAST_DIGITS and not is_whole):
        raise _not_regular(step)
    sign = optional(Literal("-"))
    if places == 0:
        if last > MAX_LAST_DIGITS:
            raise _not_regular(step)
        zeros = (
            EMPTY if is_whole else optional(concat((Literal("."), repeat(Literal("0"), 1, None))))
        )
        return concat((sign, _whole_multiples(whole, last), zeros))
    if last > places:
        raise _not_regular(step)
    if is_whole:
        # The digits after the point are zeros, and the step divides one.
        return concat((sign, Repeat(DIGIT, 1, None)))
    endings = [
        Literal(f"{number:0{places}d}"[: max(length, 1)])
        for number in range(0, 10**places, whole)
        for length in range(len(f"{number:0{places}d}".rstrip("0")), places + 1)
    ]
    fraction = concat((Literal("."), either(endings), repeat(Literal("0"), 0, None)))
    return concat((sign, Repeat(DIGIT, 1, None), optional(fraction)))


def _not_regular(step: Fraction) -> NotRegular:
    return NotRegular(
        "multipleOf", "", f"multiples of {float(step):g} have no pattern by their last digits"
    )


def _places_of(step: Fraction) -> int:
    places = 0
    while (step * 10**places).denominator != 1:
        places += 1
    return places


def _last_digits(whole: int) -> int | None:
    """How many last digits decide; None where all do."""
    count = 0
    while 10**count % whole:
        count += 1
        if count > 20:
            return None
    return count


def _whole_multiples(whole: int, last: int) -> Pattern:
    if last == 0:
        return Repeat(DIGIT, 1, None)
    endings = either(Literal(f"{number:0{last}d}") for number in range(0, 10**last, whole))
    short = either(Literal(str(number)) for number in range(0, 10**last, whole))
    return either((short, concat((NONZERO, Repeat(DIGIT, 0, None), endings))))
