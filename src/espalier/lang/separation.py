"""Which generations of an expression have their reasoning kept apart.

The same for programs that run and programs that are traced; it makes no call.
"""

from __future__ import annotations

from collections.abc import Sequence

from espalier.errors import ProgramError
from espalier.lang.ir import SglExpr, SglSeparateReasoning
from espalier.lang.reasoning_format import marks_of


def separations(parts: Sequence[SglExpr]) -> dict[int, SglSeparateReasoning]:
    """The generations, by index in flat parts, that a separate_reasoning after them is about.

    Raises UserInputError for a model type that is not known, and ProgramError for a separation
    whose generations do not stand before it.
    """
    found: dict[int, SglSeparateReasoning] = {}
    for index, part in enumerate(parts):
        if not isinstance(part, SglSeparateReasoning):
            continue
        marks_of(part.model_type)
        last = index
        for gen in reversed(part.gens()):
            last = next((i for i in reversed(range(last)) if _is_same(parts[i], gen)), -1)
            if last < 0 or last in found:
                raise ProgramError(
                    f"{part!r} was appended without its {gen!r} just before it; append what "
                    "separate_reasoning returned as a whole, once."
                )
            found[last] = part
    return found


def _is_same(part: SglExpr, gen: SglExpr) -> bool:
    return part is gen or (part.is_generation and part == gen)
