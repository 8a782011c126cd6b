"""What a program appends to its state: constants, generations, selections, roles, scopes.

Expressions are immutable values that may be appended many times. They know no state and no backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.errors import UserInputError
from espalier.lang.choices import ChoicesMethod
from espalier.lang.form import Form
from espalier.lang.location import SourceLine

ROLES = ("system", "user", "assistant")


class SglExpr:
    """Something that can be appended to a state; `+` makes a list of expressions."""

    __slots__ = ()

    def __add__(self, other: object) -> SglExprList:
        if not isinstance(other, (str, SglExpr)):
            return NotImplemented
        return SglExprList((*parts_of(self), *parts_of(as_expr(other))))

    def __radd__(self, other: object) -> SglExprList:
        if not isinstance(other, str):
            return NotImplemented
        return SglExprList((SglConstantText(other), *parts_of(self)))

    def __format__(self, specification: str) -> str:
        # Python would put the repr into the text, which nobody wants in a prompt.
        raise UserInputError(
            f"{self!r} was put into an f-string, which makes no call; join it to text with +."
        )


@dataclass(frozen=True, slots=True)
class SglConstantText(SglExpr):
    """Text as it is."""

    value: str

    def __repr__(self) -> str:
        return f"Constant({self.value!r})"


@dataclass(frozen=True, slots=True)
class SglExprList(SglExpr):
    """Expressions in order."""

    expr_list: tuple[SglExpr, ...]

    def __iter__(self) -> Iterator[SglExpr]:
        return iter(self.expr_list)

    def __repr__(self) -> str:
        return f"ExprList({list(self.expr_list)!r})"


@dataclass(frozen=True, slots=True)
class SglGen(SglExpr):
    """A generation. `sampling` holds what was given, by field name of SamplingParams."""

    name: str | None
    sampling: Mapping[str, Any]
    logprobs: Mapping[str, Any]
    form: Form | None
    location: SourceLine | None

    def __repr__(self) -> str:
        return f"Gen({self.name!r})"


@dataclass(frozen=True, slots=True)
class SglSelect(SglExpr):
    """A choice among texts by their probability."""

    name: str | None
    choices: tuple[str, ...]
    temperature: float
    choices_method: ChoicesMethod
    seed: int | None
    location: SourceLine | None

    def __repr__(self) -> str:
        return f"Select({self.name!r}, choices={list(self.choices)!r})"


def _check_role(role: str) -> None:
    # A template puts the name between its control tokens, where it may spell others.
    if role not in ROLES:
        raise UserInputError(f"the role is {role!r}; {', '.join(ROLES)} are allowed.")


@dataclass(frozen=True, slots=True)
class SglRoleBegin(SglExpr):
    """Opens a message of a role."""

    role: str

    def __post_init__(self) -> None:
        _check_role(self.role)

    def __repr__(self) -> str:
        return f"RoleBegin({self.role})"


@dataclass(frozen=True, slots=True)
class SglRoleEnd(SglExpr):
    """Closes the open message of a role."""

    role: str

    def __post_init__(self) -> None:
        _check_role(self.role)

    def __repr__(self) -> str:
        return f"RoleEnd({self.role})"


@dataclass(frozen=True, slots=True)
class SglVarScopeBegin(SglExpr):
    """Starts to record text for a variable."""

    name: str

    def __repr__(self) -> str:
        return f"VarScopeBegin({self.name!r})"


@dataclass(frozen=True, slots=True)
class SglVarScopeEnd(SglExpr):
    """Sets the variable to the text recorded since its scope began."""

    name: str

    def __repr__(self) -> str:
        return f"VarScopeEnd({self.name!r})"


@dataclass(frozen=True, slots=True, eq=False)
class SglPromised(SglExpr):
    """Text that another operation will set; `items` picks from lists. Made where graphs run."""

    variable: Any
    items: tuple[int, ...] = ()


def parts_of(expr: SglExpr) -> tuple[SglExpr, ...]:
    """The expressions of a list, or the one expression."""
    return expr.expr_list if isinstance(expr, SglExprList) else (expr,)


def as_expr(value: object) -> SglExpr:
    """Makes an expression of what a user appended; raises UserInputError (a ValueError)."""
    if isinstance(value, SglExpr):
        return value
    if isinstance(value, str):
        return SglConstantText(value)
    if isinstance(value, (list, tuple)):
        return SglExprList(tuple(part for item in value for part in parts_of(as_expr(item))))
    if value is None:
        raise UserInputError(
            "None was appended to a state; text, an expression or a list of them is allowed. "
            "Does a function lack its return?"
        )
    if callable(value):
        raise UserInputError(
            f"the callable {value!r} was appended to a state; call it first. "
            "Only a group of forks takes a function (of the index)."
        )
    raise UserInputError(
        f"{type(value).__name__} {value!r} was appended to a state; text, an expression or a "
        "list of them is allowed. Turn it into text with str()."
    )
