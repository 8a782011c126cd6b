"""Values that are not known while a program is traced: arguments, results of calls, answers.

They may be appended, joined to text with `+`, stored in variables and returned. Everything else
that Python does with a value would need to know it, and raises TraceError with the line. The tracer
is told of that error, so that a body which catches it goes no further. They know no graph; a node
is a number here.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn, TypeVar, cast

from espalier.errors import TraceError, UserInputError
from espalier.lang.ir import SglConstantText, SglExpr, SglExprList, as_expr, parts_of
from espalier.lang.location import SourceLine, call_site

_PACKAGE = __name__.partition(".")[0]
# What records the program that is being traced in this context; None where programs run.
active_tracer: ContextVar[Any] = ContextVar("espalier_tracer", default=None)
# Modules of Python that look at values for themselves, and whose answers no program branches on.
_ONLOOKERS = frozenset({"copy", "inspect", "logging", "traceback", "warnings"})


def not_traceable(what: str, location: SourceLine | None = None) -> TraceError:
    """The error of a line whose effect depends on a value that is not known while tracing."""
    place = call_site() if location is None else location
    error = TraceError(
        f"{'' if place is None else f'{place}: '}{what}",
        location=None if place is None else str(place),
    )
    tracer = active_tracer.get()
    if tracer is not None:
        tracer.refuse(error)
    return error


def _program_asks() -> bool:
    """True where the line that asks something of a value is the program's, or called by it.

    Python's own modules ask on its behalf (`abc`, `json`), but for those that only look.
    """
    if active_tracer.get() is None:
        return False
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module not in sys.stdlib_module_names:
            return bool(module != _PACKAGE)
        if module in _ONLOOKERS:
            return False
        frame = frame.f_back
    return False


def _program_line() -> SourceLine | None:
    """The nearest line that belongs neither to Espalier nor to Python."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = frame.f_globals.get("__name__", "").partition(".")[0]
        if module != _PACKAGE and module not in sys.stdlib_module_names:
            return SourceLine(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


class Abstract(SglExpr):
    """A value that is known only when the program runs."""

    __slots__ = ()

    def described(self) -> str:
        """What it is, for messages."""
        raise NotImplementedError

    def _needs_value(self, what: str) -> NoReturn:
        raise not_traceable(
            f"the program {what} {self.described()}, which is known only when the program runs. "
            "Append it (s += 'Q: ' + value), give the argument a value (bind), or run the program "
            "without tracing it.",
            _program_line(),
        )

    def __eq__(self, other: object) -> bool:
        self._needs_value("compares")

    def __ne__(self, other: object) -> bool:
        self._needs_value("compares")

    def __hash__(self) -> int:
        if _program_asks():
            self._needs_value("looks up")
        return object.__hash__(self)

    def __repr__(self) -> str:
        if _program_asks():
            self._needs_value("turns into text")
        return self._spelled()

    def _spelled(self) -> str:
        """How graphs show it."""
        raise NotImplementedError

    def __add__(self, other: object) -> SglExprList:
        return self._joined(self, other, other)

    def __radd__(self, other: object) -> SglExprList:
        return self._joined(other, self, other)

    def _joined(self, left: object, right: object, other: object) -> SglExprList:
        if not isinstance(other, (str, SglExpr)):
            self._needs_value("computes with")
        parts = (*parts_of(as_expr(left)), *parts_of(as_expr(right)))
        is_text = all(isinstance(part, (SglConstantText, Abstract)) for part in parts)
        return SglText(parts) if is_text else SglExprList(parts)

    def __getattribute__(self, name: str) -> Any:
        # `isinstance` asks for __class__, to branch; `hasattr` for anything.
        if _program_asks():
            asked = "asks for the type of" if name == "__class__" else f"uses .{name} of"
            object.__getattribute__(self, "_needs_value")(asked)
        return object.__getattribute__(self, name)


def _operation(what: str) -> Callable[..., Any]:
    def needs_value(self: Abstract, *others: object) -> Any:
        self._needs_value(what)

    return needs_value


_OPERATIONS = {
    "branches on": ("__bool__",),
    "puts into an f-string": ("__format__",),
    "turns into text": ("__str__", "__bytes__"),
    "reads": ("__buffer__", "__fspath__"),
    "compares": ("__lt__", "__le__", "__gt__", "__ge__"),
    "looks into": ("__len__", "__iter__", "__getitem__", "__contains__", "__reversed__"),
    "turns into a number": ("__int__", "__float__", "__index__", "__complex__", "__round__"),
    "computes with": (
        *("__mul__", "__rmul__", "__mod__", "__rmod__", "__sub__", "__rsub__", "__neg__"),
        *("__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__pow__", "__abs__"),
        *("__and__", "__or__", "__xor__", "__invert__"),
    ),
}
for _what, _names in _OPERATIONS.items():
    for _name in _names:
        setattr(Abstract, _name, _operation(_what))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SglArgument(Abstract):
    """An argument of the program."""

    name: str

    def described(self) -> str:
        """The argument's name."""
        return f"argument {self.name!r}"

    def _spelled(self) -> str:
        return f"Argument({self.name})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SglVariable(Abstract):
    """What the call at a node sets; `items` picks from lists: samples, entries of forks."""

    name: str | None
    node: int
    items: tuple[int, ...] = ()

    def described(self) -> str:
        """The variable's name."""
        return f"variable {self.name!r}"

    def _spelled(self) -> str:
        picked = "".join(f"[{index}]" for index in self.items)
        return f"Variable({self.name!r}, %{self.node}){picked}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SglAnswer(Abstract):
    """What a state answered at a node: its text, its messages, its usage, a meta_info."""

    what: str
    node: int

    def described(self) -> str:
        """The question."""
        return f"{self.what}()"

    def _spelled(self) -> str:
        return f"Answer({self.what}, %{self.node})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SglStateRef(Abstract):
    """A state of the graph, where the program returns it."""

    number: int

    def described(self) -> str:
        """The state."""
        return f"state {self.number}"

    def _spelled(self) -> str:
        return f"State({self.number})"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SglText(Abstract, SglExprList):
    """Text that was joined with `+` from constants and values that are not known."""

    def __post_init__(self) -> None:
        if not self.expr_list or not all(
            isinstance(part, Abstract)
            or (isinstance(part, SglConstantText) and isinstance(part.value, str))
            for part in self.expr_list
        ):
            raise UserInputError(f"{self!r} is no text; constants and values are allowed in it.")

    def described(self) -> str:
        """Its parts."""
        values = [part.described() for part in self.expr_list if isinstance(part, Abstract)]
        return f"the text with {', '.join(values)}"

    def _spelled(self) -> str:
        return f"Text({list(self.expr_list)!r})"


@dataclass(frozen=True, slots=True, eq=False)
class SglDeferred(SglExpr):
    """A primitive with arguments that are abstract; made when they are known.

    Attributes:
        primitive: "gen" or "select".
        arguments: what it was called with, by parameter name.
        location: the line of the call.
    """

    primitive: str
    arguments: Mapping[str, Any]
    location: SourceLine | None

    @property
    def name(self) -> Any:
        """The variable's name."""
        return self.arguments.get("name")

    @property
    def is_generation(self) -> bool:
        """True for a gen."""
        return self.primitive == "gen"

    def __repr__(self) -> str:
        return f"{self.primitive.capitalize()}({self.name!r})"


F = TypeVar("F", bound=Callable[..., Any])


def deferrable(primitive: F) -> F:
    """Makes a primitive give an SglDeferred where an argument is abstract."""
    signature = inspect.signature(primitive)

    @functools.wraps(primitive)
    def checked(*args: Any, **kwargs: Any) -> Any:
        if active_tracer.get() is not None and holds_abstract([*args, *kwargs.values()]):
            given = signature.bind(*args, **kwargs).arguments
            return SglDeferred(primitive.__name__, given, call_site())
        return primitive(*args, **kwargs)

    return cast(F, checked)


def need_known(value: object, what: str) -> None:
    """Raises TraceError for a value that the trace itself needs, where it is not known."""
    if isinstance(value, Abstract):
        value._needs_value(what)


def holds_abstract(value: object) -> bool:
    """True where a value is abstract, or a list, tuple or dict that holds such a value."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, Abstract):
            return True
        if isinstance(found, (list, tuple)):
            waiting += found
        elif isinstance(found, dict):
            waiting += found.values()
    return False
