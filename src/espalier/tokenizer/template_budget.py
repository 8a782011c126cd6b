"""What a chat template may use up: rounds of loops, calls, and the size of what it builds.

Owns the budget of a rendering and the filters and functions that spend from it. Knows jinja2, and
nothing of messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sized
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

import jinja2
from jinja2 import pass_context
from jinja2.runtime import Context
from jinja2.utils import _PassArg

from espalier.errors import ChatTemplateError

MAX_CHARS = 16_000_000  # of the output and of any text on the way
MAX_ROUNDS = 300_000  # loop rounds, calls, operations and list entries of one rendering
_CHARS_PER_ROUND = 256  # making a long text counts as several rounds
_MAX_NUMBER = 1 << 256
_MAX_INDENT = 16
_MAX_DATE_FORMAT = 1000
BUDGET = "espalier budget"  # no name that a template can write


def refused(what: str) -> ChatTemplateError:
    """The error for a template that does what it may not."""
    return ChatTemplateError(
        f"the chat template {what}, which is not allowed. Give another template."
    )


class Budget:
    """Counts what one rendering does; each method raises ChatTemplateError at its limit."""

    def __init__(self) -> None:
        self._left = MAX_ROUNDS
        self._written = 0

    def spend(self, rounds: int) -> None:
        """Counts loop rounds, calls or entries."""
        self._left -= rounds
        if self._left < 0:
            raise refused(f"needs more than {MAX_ROUNDS} loop rounds and calls")

    def spend_chars(self, count: int) -> None:
        """Counts the making of a text."""
        if count > MAX_CHARS:
            raise refused(f"makes a text of more than {MAX_CHARS} characters")
        self.spend(count // _CHARS_PER_ROUND)

    def spend_sized(self, value: Any) -> None:
        """Counts one pass over a text or a container, not over what is inside its entries."""
        if isinstance(value, str):
            self.spend_chars(len(value))
        elif isinstance(value, Sized):
            self.spend(len(value))

    def spend_value(self, value: Any) -> None:
        """Counts everything inside a value, however deep."""
        stack = [value]
        while stack:
            item = stack.pop()
            self.spend(1)
            if isinstance(item, str):
                self.spend_chars(len(item))
            elif isinstance(item, Mapping):
                stack += item.keys()
                stack += item.values()
            elif isinstance(item, (list, tuple, set, frozenset)):
                stack += item

    def write(self, count: int) -> None:
        """Counts characters of the output."""
        self._written += count
        if self._written > MAX_CHARS:
            raise refused(f"writes more than {MAX_CHARS} characters")

    def spend_operation(self, operator: str, left: Any, right: Any) -> None:
        """Counts an arithmetic operation, before it is done."""
        self.spend(1)
        pair = (left, right)
        if operator == "%" and isinstance(left, str):
            raise refused("formats text with %")
        if operator == "+":
            self.spend_sized(left)
            self.spend_sized(right)
            if isinstance(left, str) and isinstance(right, str):
                self.spend_chars(len(left) + len(right))
        elif operator == "*" and any(isinstance(item, Sized) for item in pair):
            times = max([0, *(item for item in pair if isinstance(item, int))])
            sized = next(item for item in pair if isinstance(item, Sized))
            if isinstance(sized, str):
                self.spend_chars(len(sized) * times)
            else:
                self.spend(len(sized) * times)
        elif operator == "**" and isinstance(right, (int, float)) and abs(right) > 256:
            raise refused("takes a power above 256")
        elif any(isinstance(item, int) and abs(item) > _MAX_NUMBER for item in pair):
            raise refused("computes with a number of more than 256 bits")


class BudgetContext(Context):
    """The variables of a rendering, with its budget where no template can reach it."""

    def __init__(
        self,
        environment: jinja2.Environment,
        parent: dict[str, Any],
        name: str | None,
        blocks: dict[str, Any],
        globals: MutableMapping[str, Any] | None = None,  # noqa: A002 - jinja2's name
    ) -> None:
        super().__init__(environment, parent, name, blocks, globals)
        self.budget: Budget = parent[BUDGET]


def metered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of jinja2 that counts one pass over its value."""
    passed = _PassArg.from_obj(function)

    @pass_context
    @wraps(function)
    def counting(context: BudgetContext, value: Any, *args: Any, **kwargs: Any) -> Any:
        context.budget.spend(1)
        context.budget.spend_sized(value)
        first: dict[Any, tuple[Any, ...]] = {
            None: (),
            _PassArg.context: (context,),
            _PassArg.eval_context: (context.eval_ctx,),
            _PassArg.environment: (context.environment,),
        }
        return function(*first[passed], value, *args, **kwargs)

    return counting


def replaced_length(text: str, old: Any, new: Any) -> int:
    """Characters of a text after a replacement, at most."""
    return len(text) + text.count(str(old)) * len(str(new))


def joined_length(items: Iterable[str], between: str) -> int:
    """Characters of joined texts, at most."""
    lengths = [len(item) for item in items]
    return sum(lengths) + len(lengths) * len(between)


@pass_context
def finalize(context: BudgetContext, value: Any) -> Any:
    """Counts what is written."""
    if isinstance(value, str):
        context.budget.write(len(value))
    else:
        context.budget.spend_value(value)
    return value


@pass_context
def counted(context: BudgetContext, value: Any) -> Any:
    """What a loop runs over; a generator is listed first, so that its length is known."""
    rounds = value if isinstance(value, (Sized, jinja2.Undefined)) else list(value)
    context.budget.spend(len(rounds))
    return rounds


@pass_context
def built(context: BudgetContext, value: Any) -> Any:
    """A list, tuple or dict of the template's own, counted with all that is in it."""
    context.budget.spend_value(value)
    return value


@pass_context
def string(context: BudgetContext, value: Any) -> str:
    """A value as text."""
    context.budget.spend_value(value)
    return str(value)


@pass_context
def join(context: BudgetContext, value: Any, d: Any = "", attribute: Any = None) -> str:
    """Values, or an attribute of each, as one text."""
    if attribute is not None:
        value = [context.environment.getitem(item, attribute) for item in value]
    items = list(value)
    context.budget.spend_value(items)
    texts = [str(item) for item in items]
    context.budget.spend_chars(joined_length(texts, str(d)))
    return str(d).join(texts)


@pass_context
def concat(context: BudgetContext, values: list[Any]) -> str:
    """The values of a chain of `~`."""
    return join(context, values)


@pass_context
def replace(context: BudgetContext, s: Any, old: Any, new: Any, count: int | None = None) -> str:
    """A text with parts replaced."""
    context.budget.spend_value(s)
    text = str(s)
    context.budget.spend_chars(replaced_length(text, old, new))
    return text.replace(str(old), str(new), -1 if count is None else count)


@pass_context
def to_json(
    context: BudgetContext,
    x: Any,
    *,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is; jinja2's own filter would escape it for HTML."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise refused(f"indents JSON by {indent}")
    context.budget.spend_value(x)
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


@pass_context
def counted_range(context: BudgetContext, *args: int) -> range:
    """`range`, whose length counts."""
    numbers = range(*args)
    context.budget.spend(len(numbers))
    return numbers


def date_function(now: datetime) -> Callable[[str], str]:
    """`strftime_now` for one moment."""

    def strftime_now(format: str) -> str:  # noqa: A002 - the name that templates know
        if len(format) > _MAX_DATE_FORMAT or re.search(r"%[^a-zA-Z%]*\d", format):
            raise refused(f"formats a date by {format[:40]!r}")
        return now.strftime(format)

    return strftime_now


def raise_exception(message: Any = "") -> NoReturn:
    """How a template refuses messages."""
    raise ChatTemplateError(
        f"the chat template refuses these messages: {message}. Change their roles or order."
    )
