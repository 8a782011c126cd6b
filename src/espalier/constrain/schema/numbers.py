"""Sets of numbers: what numeric keywords say together. Knows no text of a number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that satisfy all of what is set.

    Attributes:
        low, high: bounds, None for none; `low_open`, `high_open` exclude the bounds themselves.
        integral: True for integers (1.0 is one), False for all others, None for both.
        multiples, non_multiples: what a number must, or must not, be a multiple of.
        values: the only numbers allowed with the text each is written as, None for no such limit.
        excluded: numbers that are not allowed.
    """

    low: Fraction | None = None
    low_open: bool = False
    high: Fraction | None = None
    high_open: bool = False
    integral: bool | None = None
    multiples: tuple[Fraction, ...] = ()
    non_multiples: tuple[Fraction, ...] = ()
    values: tuple[tuple[Fraction, str], ...] | None = None
    excluded: frozenset[Fraction] = frozenset()

    def has(self, number: Fraction) -> bool:
        """The number satisfies everything but `values`."""
        if self.low is not None and (number < self.low or (self.low_open and number == self.low)):
            return False
        if self.high is not None and (
            number > self.high or (self.high_open and number == self.high)
        ):
            return False
        if self.integral is not None and (number.denominator == 1) is not self.integral:
            return False
        if number in self.excluded:
            return False
        if any((number / step).denominator != 1 for step in self.multiples):
            return False
        return all((number / step).denominator != 1 for step in self.non_multiples)

    @property
    def is_empty(self) -> bool:
        """Plainly no number satisfies it."""
        if self.values is not None:
            return not self.values
        if self.low is None or self.high is None or self.low < self.high:
            return False
        return self.low > self.high or self.low_open or self.high_open or not self.has(self.low)

    def meet(self, other: Numbers) -> Numbers:
        """Numbers of both."""
        if other == ANY_NUMBER:
            return self
        if self == ANY_NUMBER:
            return other
        low, low_open = self.low, self.low_open
        if other.low is not None and (low is None or other.low >= low):
            low_open = other.low_open or (low == other.low and low_open)
            low = other.low
        high, high_open = self.high, self.high_open
        if other.high is not None and (high is None or other.high <= high):
            high_open = other.high_open or (high == other.high and high_open)
            high = other.high
        integral = self.integral if self.integral is not None else other.integral
        values = self.values
        if values is None:
            values = other.values
        elif other.values is not None:
            allowed = {number for number, _ in other.values}
            values = tuple(item for item in values if item[0] in allowed)
        if other.integral not in (None, integral):
            values = ()
        met = Numbers(
            low,
            low_open,
            high,
            high_open,
            integral,
            tuple(dict.fromkeys(self.multiples + other.multiples)),
            tuple(dict.fromkeys(self.non_multiples + other.non_multiples)),
            values,
            self.excluded | other.excluded,
        )
        if values:
            met = replace(met, values=tuple(item for item in values if met.has(item[0])))
        return met


ANY_NUMBER = Numbers()
