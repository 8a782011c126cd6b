"""The rules of an EBNF grammar as values. Knows no syntax and no library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Union

from espalier.constrain.pattern import CodePoints


@dataclass(frozen=True, slots=True)
class Text:
    """One text; "" is the empty one."""

    text: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of some ranges, without surrogates; never empty."""

    ranges: CodePoints


@dataclass(frozen=True, slots=True)
class Sequence:
    """The parts, one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Any of the options; never empty."""

    options: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """`low` to `high` times in a row; `high` None: any number from `low` on."""

    inner: Expression
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Rule:
    """The texts of a rule, by its name."""

    name: str


Expression = Union[Text, OneOf, Sequence, Choice, Times, Rule]  # noqa: UP007
Rules = dict[str, Expression]


def inner_parts(expression: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside one."""
    if isinstance(expression, Sequence):
        return expression.parts
    if isinstance(expression, Choice):
        return expression.options
    if isinstance(expression, Times):
        return (expression.inner,)
    return ()


def rule_names(expression: Expression) -> Iterator[str]:
    """Names of the rules that an expression uses, in order, repeated as they are."""
    if isinstance(expression, Rule):
        yield expression.name
    for part in inner_parts(expression):
        yield from rule_names(part)
