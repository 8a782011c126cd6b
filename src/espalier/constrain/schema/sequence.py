"""Parts in a row with separators between those that are there, as patterns.

Knows no JSON. Sizes stay near the number of parts: alternatives are halved, not listed.
"""

from __future__ import annotations

from collections.abc import Sequence

from espalier.constrain.pattern import EMPTY, NOTHING, Literal, Pattern, Repeat
from espalier.constrain.schema.construct import concat, either, led_by, repeat
from espalier.constrain.schema.refusal import NotRegular

MAX_COUNTED = 8  # optional parts of which some number must be there


class Slot:
    """One part: a text, then a value; it may repeat, `high` times at most (None: without end)."""

    __slots__ = ("_separator", "_text", "_value", "after", "high", "is_required", "low", "repeats")

    def __init__(self, text: str, value: Pattern, separator: str, *, is_required: bool) -> None:
        self._text = text
        self._value = value
        self._separator = separator
        self.is_required = is_required
        self.repeats = False
        self.low = 0
        self.high: int | None = None
        following = led_by(separator + text, value)
        self.after = following if is_required else Repeat(following, 0, 1)

    def repeated(self, low: int = 0, high: int | None = None) -> Slot:
        """The same part `low` to `high` times."""
        found = Slot(self._text, self._value, self._separator, is_required=low > 0)
        found.repeats, found.low, found.high = True, low, high
        found.after = repeat(led_by(self._separator + self._text, self._value), low, high)
        return found

    @property
    def first(self) -> Pattern:
        """The slot where it is there, and nothing precedes it."""
        part = led_by(self._text, self._value)
        if not self.repeats:
            return part
        if self.high == 0:
            return NOTHING
        most = None if self.high is None else self.high - 1
        return concat((part, self.repeated(max(self.low - 1, 0), most).after))

    @property
    def required_after(self) -> Pattern:
        """The slot where it is there, and something precedes it."""
        return led_by(self._separator + self._text, self._value)

    @property
    def before(self) -> Pattern:
        """The slot, which may be missing, where something follows it."""
        return Repeat(concat((led_by(self._text, self._value), Literal(self._separator))), 0, 1)


def non_empty(slots: Sequence[Slot]) -> Pattern:
    """The slots in order, at least one of them there. A required slot is always there."""
    first = next((index for index, slot in enumerate(slots) if slot.is_required), None)
    if first is None:
        return _some(slots)
    before = [slot.before for slot in slots[:first]]
    return concat((*before, slots[first].first, *(slot.after for slot in slots[first + 1 :])))


def _some(slots: Sequence[Slot]) -> Pattern:
    """Optional slots, at least one of them there."""
    if not slots:
        return NOTHING
    if len(slots) == 1:
        return slots[0].first
    middle = len(slots) // 2
    later = [slot.after for slot in slots[middle:]]
    return either((concat((_some(slots[:middle]), *later)), _some(slots[middle:])))


def counted(slots: Sequence[Slot], low: int, high: int | None) -> Pattern:
    """The slots in order, `low` to `high` of them there, which excludes none at all.

    Raises NotRegular, with no place, where too many are optional.
    """
    num_optional = sum(not slot.is_required for slot in slots)
    if num_optional > MAX_COUNTED:
        raise NotRegular(
            "minProperties" if low > 1 else "maxProperties",
            "",
            f"it counts {num_optional} optional properties; at most {MAX_COUNTED} can be",
        )
    return _counted(tuple(slots), low, high, True)


def _counted(slots: tuple[Slot, ...], low: int, high: int | None, is_first: bool) -> Pattern:
    least = sum(slot.is_required for slot in slots)
    most = None if any(slot.repeats for slot in slots) else len(slots)
    if (most is not None and low > most) or (high is not None and high < least):
        return NOTHING
    if not slots:
        return NOTHING if is_first else EMPTY
    if low <= least and (high is None or (most is not None and high >= most)) and not is_first:
        return concat(slot.after for slot in slots)
    head, rest = slots[0], slots[1:]
    if head.repeats:
        bounded = head.repeated(max(low, 0), high)
        return bounded.first if is_first else bounded.after
    fewer = None if high is None else high - 1
    options = []
    if high is None or high > 0:
        part = head.first if is_first else head.required_after
        options.append(concat((part, _counted(rest, low - 1, fewer, False))))
    if not head.is_required:
        options.append(_counted(rest, low, high, is_first))
    return either(options)
