"""A jinja2 sandbox for chat templates, which come with model files and are not to be trusted.

Besides what jinja2's sandbox forbids (reaching Python's internals, changing arguments), a rendering
has a budget: of loop rounds and calls, of the size of any value it builds, and of its output.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sized
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes, pass_context
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from espalier.errors import ChatTemplateError

MAX_CHARS = 16_000_000  # of the output and of any text on the way
MAX_ROUNDS = 1_000_000  # loop rounds, calls and operations of one rendering
_CHARS_PER_ROUND = 64  # making a long text counts as several rounds
_MAX_NUMBER = 1 << 256
_MAX_INDENT = 16
_BUDGET = "espalier_budget"
# Filters and methods that make text of any length, and that chat templates do without.
_FORBIDDEN_FILTERS = ("batch", "center", "filesizeformat", "format", "indent", "pprint", "slice")
_MARKUP_FILTERS = ("urlize", "wordwrap", "xmlattr")
_FORBIDDEN_GLOBALS = ("cycler", "joiner", "lipsum")
_FORBIDDEN_METHODS = frozenset({"expandtabs", "format", "format_map", "to_bytes", "translate"})
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill"})


class _Budget:
    """Counts what one rendering does."""

    def __init__(self) -> None:
        self._left = MAX_ROUNDS
        self._written = 0

    def spend(self, rounds: int) -> None:
        self._left -= rounds
        if self._left < 0:
            raise _refused(f"needs more than {MAX_ROUNDS} loop rounds and calls")

    def spend_chars(self, count: int) -> None:
        if count > MAX_CHARS:
            raise _refused(f"makes a text of more than {MAX_CHARS} characters")
        self.spend(count // _CHARS_PER_ROUND)

    def write(self, count: int) -> None:
        self._written += count
        if self._written > MAX_CHARS:
            raise _refused(f"writes more than {MAX_CHARS} characters")

    def spend_value(self, value: Any) -> None:
        """Counts everything inside a value that is to be written out."""
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


def _budget(context: Context) -> _Budget:
    budget = context.resolve(_BUDGET)
    if not isinstance(budget, _Budget):
        raise _refused(f"sets the name {_BUDGET}")
    return budget


def _refused(what: str) -> ChatTemplateError:
    return ChatTemplateError(
        f"the chat template {what}, which is not allowed. Give another template."
    )


class _GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}`: marks text for training; shown as it is."""

    tags = {"generation"}  # noqa: RUF012 - the attribute is jinja2's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment that chat templates are written for, with a budget."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: datetime) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalize,
            extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
        )
        for name in (*_FORBIDDEN_FILTERS, *_MARKUP_FILTERS):
            self.filters.pop(name, None)
        for name in _FORBIDDEN_GLOBALS:
            self.globals.pop(name, None)
        self.filters.update(
            tojson=_to_json,
            replace=_replace,
            join=_join,
            string=_string,
            espalier_counted=_counted,
            espalier_concat=_concat,
        )
        self.globals.update(raise_exception=_raise_exception, strftime_now=now.strftime)

    def render(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """Renders within the budget; raises ChatTemplateError for whatever goes wrong."""
        try:
            return template.render({**variables, _BUDGET: _Budget()})
        except ChatTemplateError:
            raise
        except Exception as error:  # a template may raise anything that Python can
            raise ChatTemplateError(
                f"the chat template failed with {type(error).__name__}: {error}. Check the "
                "messages against what the model's template takes, or give another template."
            ) from error

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Calls within the budget; the odd names leave arguments of any name possible."""
        budget = _budget(__context)
        budget.spend(1)
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str) and name == "replace" and len(args) >= 2:
            budget.spend_chars(_replaced_length(owner, *args[:2]))
        elif isinstance(owner, str) and name == "join" and args:
            args = ([str(item) for item in args[0]], *args[1:])
            budget.spend_chars(_joined_length(args[0], owner))
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operation whose result has a bounded size."""
        budget = _budget(context)
        budget.spend(1)
        sized = [item for item in (left, right) if isinstance(item, Sized)]
        if operator == "%" and isinstance(left, str):
            raise _refused("formats text with %")
        if operator == "+":
            budget.spend_chars(sum(map(len, sized)))
        elif operator == "*" and sized:
            times = [item for item in (left, right) if isinstance(item, int)]
            budget.spend_chars(len(sized[0]) * max([0, *times]))
        elif operator in ("*", "**"):
            _check_numbers(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Refuses what jinja2 refuses, and methods that make text of any length."""
        forbidden = _FORBIDDEN_METHODS | _PADDING_METHODS
        if attr in forbidden and isinstance(obj, (str, int)):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = _counting(super()._parse(source, name, filename))
        tree.set_environment(self)
        return tree


def _counting(tree: nodes.Template) -> nodes.Template:
    """Makes loops count their rounds, `~` the length of its result, and text itself."""
    for loop in list(tree.find_all(nodes.For)):
        assert isinstance(loop.iter, nodes.Expr)
        loop.iter = _filtered(loop.iter, "espalier_counted")
    for node in [tree, *tree.find_all(nodes.Node)]:
        for name, value in node.iter_fields():
            if isinstance(value, list):
                value[:] = [_counted_node(item) for item in value]
            else:
                setattr(node, name, _counted_node(value))
    return tree


def _counted_node(node: Any) -> Any:
    if isinstance(node, nodes.Concat):
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "espalier_concat")
    if isinstance(node, nodes.TemplateData):
        # A constant, unlike template data, goes through `finalize`.
        return nodes.Const(node.data, lineno=node.lineno)
    return node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _check_numbers(operator: str, left: Any, right: Any) -> None:
    if operator == "**" and isinstance(right, (int, float)) and abs(right) > 256:
        raise _refused("takes a power above 256")
    if any(isinstance(item, int) and abs(item) > _MAX_NUMBER for item in (left, right)):
        raise _refused("computes with a number of more than 256 bits")


def _replaced_length(text: str, old: Any, new: Any) -> int:
    return len(text) + text.count(str(old)) * len(str(new))


def _joined_length(items: Iterable[str], between: str) -> int:
    lengths = [len(item) for item in items]
    return sum(lengths) + len(lengths) * len(between)


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    budget = _budget(context)
    if isinstance(value, str):
        budget.write(len(value))
    else:
        budget.spend_value(value)
    return value


@pass_context
def _counted(context: Context, value: Any) -> Any:
    """What a loop runs over; a generator is listed first, so that its length is known."""
    rounds = value if isinstance(value, (Sized, jinja2.Undefined)) else list(value)
    _budget(context).spend(len(rounds))
    return rounds


@pass_context
def _concat(context: Context, values: list[Any]) -> str:
    return _join(context, values)


@pass_context
def _string(context: Context, value: Any) -> str:
    _budget(context).spend_value(value)
    return str(value)


@pass_context
def _join(context: Context, value: Any, d: Any = "", attribute: Any = None) -> str:
    if attribute is not None:
        value = [context.environment.getitem(item, attribute) for item in value]
    budget = _budget(context)
    items = list(value)
    budget.spend_value(items)
    texts = [str(item) for item in items]
    budget.spend_chars(_joined_length(texts, str(d)))
    return str(d).join(texts)


@pass_context
def _replace(context: Context, s: Any, old: Any, new: Any, count: int = -1) -> str:
    budget = _budget(context)
    budget.spend_value(s)
    text = str(s)
    budget.spend_chars(_replaced_length(text, old, new))
    return text.replace(str(old), str(new), -1 if count is None else count)


@pass_context
def _to_json(
    context: Context,
    x: Any,
    *,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is; jinja2's own filter would escape it for HTML."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise _refused(f"indents JSON by {indent}")
    _budget(context).spend_value(x)
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: Any = "") -> NoReturn:
    raise ChatTemplateError(
        f"the chat template refuses these messages: {message}. Change their roles or order."
    )
