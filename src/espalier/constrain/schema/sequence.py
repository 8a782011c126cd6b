"""Parts in a row with separators between those that are there, as patterns.

Knows no JSON. Sizes stay near the number of parts: alternatives are halved, not listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from espalier.constrain.pattern import EMPTY, NOTHING, Pattern
from espalier.constrain.schema.construct import concat, either, optional, repeat
from espalier.constrain.schema.refusal import NotRegular

MAX_COUNTED = 8  # optional parts of which some number must be there


@dataclass(frozen=True, slots=True)
class Slot:
    """One part; `high` times at most where it repeats (None for any number of times)."""

    part: Pattern
    is_required: bool
    repeats: bool = False
    low: int = 0
    high: int | None = None


def after_others(slot: Slot, separator: Pattern) -> Pattern:
    """A slot where something precedes it."""
    one = concat((separator, slot.part))
    if slot.repeats:
        return repeat(one, slot.low, slot.high)
    return one if slot.is_required else optional(one)


def first_there(slot: Slot, separator: Pattern) -> Pattern:
    """A slot that is there, and first."""
    if not slot.repeats:
        return slot.part
    if slot.high == 0:
        return NOTHING
    most = None if slot.high is None else slot.high - 1
    more = repeat(concat((separator, slot.part)), max(slot.low - 1, 0), most)
    return concat((slot.part, more))


def non_empty(slots: Sequence[Slot], separator: Pattern) -> Pattern:
    """The slots in order, at least one of them there. A required slot is always there."""
    first = next((index for index, slot in enumerate(slots) if slot.is_required), None)
    if first is None:
        return _some(slots, separator)
    before = [optional(concat((slot.part, separator))) for slot in slots[:first]]
    after = [after_others(slot, separator) for slot in slots[first + 1 :]]
    return concat((*before, first_there(slots[first], separator), *after))


def _some(slots: Sequence[Slot], separator: Pattern) -> Pattern:
    """Optional slots, at least one of them there."""
    if not slots:
        return NOTHING
    if len(slots) == 1:
        return first_there(slots[0], separator)
    middle = len(slots) // 2
    later = [after_others(slot, separator) for slot in slots[middle:]]
    return either(
        (concat((_some(slots[:middle], separator), *later)), _some(slots[middle:], separator))
    )


def counted(slots: Sequence[Slot], separator: Pattern, low: int, high: int | None) -> Pattern:
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
    return _counted(tuple(slots), separator, low, high, True)


def _counted(
    slots: tuple[Slot, ...], separator: Pattern, low: int, high: int | None, is_first: bool
) -> Pattern:
    least = sum(slot.is_required for slot in slots)
    most = None if any(slot.repeats for slot in slots) else len(slots)
    if (most is not None and low > most) or (high is not None and high < least):
        return NOTHING
    if not slots:
        return NOTHING if is_first else EMPTY
    if low <= least and (high is None or (most is not None and high >= most)) and not is_first:
        return concat(after_others(slot, separator) for slot in slots)
    head, rest = slots[0], slots[1:]
    fewer = None if high is None else high - 1
    options = []
    if head.repeats:
        bounded = Slot(head.part, low > 0, True, max(low, 0), high)
        options.append(first_there(bounded, separator) if is_first
                       else after_others(bounded, separator))  # fmt: skip
        return either(options)
    part = head.part if is_first else concat((separator, head.part))
    if high is None or high > 0:
        options.append(concat((part, _counted(rest, separator, low - 1, fewer, False))))
    if not head.is_required:
        options.append(_counted(rest, separator, low, high, is_first))
    return either(options)
