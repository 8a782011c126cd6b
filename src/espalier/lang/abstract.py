"""Values that are not known while a program is traced: arguments, results of calls, answers.

They may be appended, joined to text with `+`, stored in variables and returned. Everything else
that Python does with a value would need to know it, and raises TraceError with the line. They know
no graph; a node is a number here.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

from espalier.errors import TraceError
from espalier.lang.ir import SglExpr
from espalier.lang.location import SourceLine, call_site

_PACKAGE = __name__.partition(".")[0]


def not_traceable(what: str, location: SourceLine | None = None) -> TraceError:
    """The error of a line whose effect depends on a value that is not known while tracing."""
    place = call_site() if location is None else location
    return TraceError(
        f"{'' if place is None else f'{place}: '}{what}",
        location=None if place is None else str(place),
    )


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
            "without tracing it."
        )

    def __eq__(self, other: object) -> bool:
        self._needs_value("compares")

    def __ne__(self, other: object) -> bool:
        self._needs_value("compares")

    __hash__ = object.__hash__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """Its type; to a program that is traced an error: `isinstance` asks for it, to branch."""
        module = sys._getframe(1).f_globals.get("__name__", "").partition(".")[0]
        is_users = module != _PACKAGE and module not in sys.stdlib_module_names
        if is_users and active_tracer.get() is not None:
            self._needs_value("asks for the type of")
        return type(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copy, inspect and their like look for
            raise AttributeError(name)
        self._needs_value(f"uses .{name} of")


def _operation(what: str) -> Callable[..., Any]:
    def needs_value(self: Abstract, *others: object) -> Any:
        self._needs_value(what)

    return needs_value


_OPERATIONS = {
    "branches on": ("__bool__",),
    "puts into an f-string": ("__format__",),
    "turns into text": ("__str__",),
    "compares": ("__lt__", "__le__", "__gt__", "__ge__"),
    "looks into": ("__len__", "__iter__", "__getitem__", "__contains__", "__reversed__"),
    "turns into a number": ("__int__", "__float__", "__index__", "__complex__", "__round__"),
    "computes with": (
        *("__mul__", "__rmul__", "__mod__", "__rmod__", "__sub__", "__rsub__", "__neg__"),
        *("__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__pow__", "__abs__"),
        *("__and__", "__or__", "__xor__", "__invert__"),
    ),
    "calls": ("__call__",),
}
for _what, _names in _OPERATIONS.items():
    for _name in _names:
        setattr(Abstract, _name, _operation(_what))


@dataclass(frozen=True, slots=True, eq=False)
class SglArgument(Abstract):
    """An argument of the program."""

    name: str

    def described(self) -> str:
        """The argument's name."""
        return f"argument {self.name!r}"

    def __repr__(self) -> str:
        return f"Argument({self.name})"


@dataclass(frozen=True, slots=True, eq=False)
class SglVariable(Abstract):
    """What the call at a node sets; `items` picks from lists: samples, entries of forks."""

    name: str | None
    node: int
    items: tuple[int, ...] = ()

    def described(self) -> str:
        """The variable's name."""
        return f"variable {self.name!r}"

    def __repr__(self) -> str:
        picked = "".join(f"[{index}]" for index in self.items)
        return f"Variable({self.name!r}, %{self.node}){picked}"


@dataclass(frozen=True, slots=True, eq=False)
class SglAnswer(Abstract):
    """What a state answered at a node: its text, its messages, its usage, a meta_info."""

    what: str
    node: int

    def described(self) -> str:
        """The question."""
        return f"{self.what}()"

    def __repr__(self) -> str:
        return f"Answer({self.what}, %{self.node})"


@dataclass(frozen=True, slots=True, eq=False)
class SglStateRef(Abstract):
    """A state of the graph, where the program returns it."""

    number: int

    def described(self) -> str:
        """The state."""
        return f"state {self.number}"

    def __repr__(self) -> str:
        return f"State({self.number})"


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

# What records the program that is being traced in this context; None where programs run.
active_tracer: ContextVar[Any] = ContextVar("espalier_tracer", default=None)


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
