"""Expressions as states take them: no lists, and each separation joined to its generations.

The same for programs that run and programs that are traced; it makes no call.
"""

from __future__ import annotations

from collections.abc import Sequence

from espalier.errors import ProgramError
from espalier.lang.ir import (
    SglExpr,
    SglReasoning,
    SglReasoningVariable,
    SglSeparateReasoning,
    as_expr,
    flat_parts,
)
from espalier.lang.reasoning_format import marks_of


def parts_to_append(value: object) -> list[SglExpr]:
    """What a user appended, part by part.

    Raises UserInputError for what cannot be appended and for a model type that is not known, and
    ProgramError for a separation whose generations do not stand before it.
    """
    parts = flat_parts(as_expr(value))
    if not any(isinstance(part, SglSeparateReasoning) for part in parts):
        return parts
    separations = _separations(parts)
    found: list[SglExpr] = []
    for index, part in enumerate(parts):
        separation = separations.get(index)
        if separation is not None:
            found += _joined(part, separation)
        elif not isinstance(part, SglSeparateReasoning):
            found.append(part)
    return found


def _joined(part: SglExpr, separation: SglSeparateReasoning) -> tuple[SglExpr, SglExpr]:
    gen = SglReasoning(part, separation.model_type, separation.keep_reasoning)
    name = separation.process_name_for_reasoning(gen.name)
    assert gen.name is not None
    return gen, SglReasoningVariable(name, separation.model_type, gen.name)


def _separations(parts: Sequence[SglExpr]) -> dict[int, SglSeparateReasoning]:
    """The separation of each generation that has one, by index in the parts."""
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
