"""What a program appends to its state: constants, generations, selections, roles, scopes.

Expressions are immutable values that may be appended many times. They know no state and no backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from espalier.errors import UserInputError
from espalier.lang.choices import ChoicesMethod
from espalier.lang.form import Form
from espalier.lang.location import SourceLine
from espalier.lang.reference_sampling import SglSamplingParams  # noqa: F401 - a name of this

# What the reference constrains each dtype to; strings there have neither escapes nor punctuation.
REGEX_INT = r"[-+]?[0-9]+[ \n]*"
REGEX_FLOAT = r"[-+]?[0-9]*\.?[0-9]+[ \n]*"
REGEX_BOOL = r"(True|False)"
REGEX_STR = r"\"[\w\d\s]*\""

ROLES = ("system", "user", "assistant")


class SglExpr:
    """Something that can be appended to a state; `+` makes a list of expressions."""

    __slots__ = ()

    @property
    def is_generation(self) -> bool:
        """True for a generation, also for one whose arguments are not known yet."""
        return False

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

    name: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    logprobs: Mapping[str, Any] = field(default_factory=dict)
    form: Form | None = None
    location: SourceLine | None = None
    timeout_s: float | None = None

    @property
    def is_generation(self) -> bool:
        """True."""
        return True

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
    timeout_s: float | None = None

    def __repr__(self) -> str:
        return f"Select({self.name!r}, choices={list(self.choices)!r})"


@dataclass(frozen=True, slots=True)
class SglSeparateReasoning(SglExpr):
    """Says that the generations of `expr`, appended just before, reason before they answer.

    `name` is the variable of the (last) generation's reasoning. Raises UserInputError (a
    ValueError) where there is no generation, or one without a name.
    """

    model_type: str | None
    expr: SglExpr
    keep_reasoning: bool = False
    name: str = field(init=False)

    def __post_init__(self) -> None:
        gens = self.gens()
        if not gens:
            raise UserInputError(
                f"separate_reasoning was given {self.expr!r}; a gen, or a list with one, is "
                "allowed."
            )
        for gen in gens:
            object.__setattr__(self, "name", self.process_name_for_reasoning(gen.name))

    def gens(self) -> list[Any]:
        """The generations whose text is to be separated: SglGens, or such that are to be."""
        return [part for part in flat_parts(self.expr) if part.is_generation]

    @staticmethod
    def process_name_for_reasoning(name: str | None) -> str:
        """The variable of the reasoning that belongs to the variable `name`."""
        if not name:
            raise UserInputError(
                "separate_reasoning was given a gen without a name, whose reasoning could not be "
                "read; name it."
            )
        return f"{name}_reasoning_content"

    def __repr__(self) -> str:
        return f"SeparateReasoning(model_type={self.model_type}, name={self.name})"


@dataclass(frozen=True, slots=True)
class SglReasoning(SglExpr):
    """A generation with its separation, as states take it; `separation.py` makes it."""

    gen: Any  # an SglGen, or one that is to be
    model_type: str | None
    keep_reasoning: bool

    @property
    def name(self) -> str | None:
        """The variable of the answer."""
        name: str | None = self.gen.name
        return name

    @property
    def location(self) -> SourceLine | None:
        """The line of the gen."""
        location: SourceLine | None = self.gen.location
        return location

    def __repr__(self) -> str:
        return repr(self.gen)


@dataclass(frozen=True, slots=True)
class SglReasoningVariable(SglExpr):
    """Stands after an SglReasoning for the variable of its reasoning, which that one sets."""

    name: str
    model_type: str | None
    answer: str

    def __repr__(self) -> str:
        return f"SeparateReasoning(model_type={self.model_type}, name={self.name})"


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


def flat_parts(expr: SglExpr) -> list[SglExpr]:
    """The expressions of a list and of the lists in it, in order."""
    if not isinstance(expr, SglExprList):
        return [expr]
    return [part for item in expr.expr_list for part in flat_parts(item)]


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
