"""A jinja2 sandbox for chat templates, which come with model files and are not to be trusted.

On top of what jinja2's sandbox forbids (reaching Python's internals, changing arguments), every
rendering has a budget. Knows how to compile and render; what things cost is in template_budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from espalier.errors import ChatTemplateError
from espalier.tokenizer import template_budget as budgeted

# Filters, functions and methods that make anything of any length, and that chat templates do
# without.
_FORBIDDEN_FILTERS = ("batch", "center", "filesizeformat", "format", "indent", "pprint", "slice")
_MARKUP_FILTERS = ("forceescape", "sum", "urlize", "wordwrap", "xmlattr")
_FORBIDDEN_GLOBALS = ("cycler", "joiner", "lipsum")
_FORBIDDEN_METHODS = frozenset(
    {"encode", "expandtabs", "format", "format_map", "fromkeys", "to_bytes", "translate"}
)
_PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill"})
_COUNTED, _CONCAT, _BUILT = "espalier_counted", "espalier_concat", "espalier_built"


class _GenerationTag(Extension):
    """`{% generation %} ... {% endgeneration %}`: marks text for training; shown as it is."""

    tags = {"generation"}  # noqa: RUF012 - the attribute is jinja2's

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the tags."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment that chat templates are written for, with a budget."""

    context_class = budgeted.BudgetContext
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: datetime) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=budgeted.finalize,
            extensions=[_GenerationTag, "jinja2.ext.loopcontrols"],
        )
        for name in (*_FORBIDDEN_FILTERS, *_MARKUP_FILTERS):
            self.filters.pop(name, None)
        for name in _FORBIDDEN_GLOBALS:
            self.globals.pop(name, None)
        for name, function in list(self.filters.items()):
            self.filters[name] = budgeted.metered(function)
        self.filters.update(
            {
                "tojson": budgeted.to_json,
                "replace": budgeted.replace,
                "join": budgeted.join,
                "string": budgeted.string,
                _COUNTED: budgeted.counted,
                _CONCAT: budgeted.concat,
                _BUILT: budgeted.built,
            }
        )
        self.globals.update(
            range=budgeted.counted_range,
            raise_exception=budgeted.raise_exception,
            strftime_now=budgeted.date_function(now),
        )

    def compiled(self, source: str) -> jinja2.Template:
        """A template; raises ChatTemplateError where `source` is none."""
        try:
            return self.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ChatTemplateError(
                f"the chat template is not a valid jinja2 template ({error}). "
                "Give another template."
            ) from error

    def render(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        """Renders within the budget; raises ChatTemplateError for whatever goes wrong."""
        try:
            return template.render({**variables, budgeted.BUDGET: budgeted.Budget()})
        except ChatTemplateError:
            raise
        except Exception as error:  # a template may raise anything that Python can
            raise ChatTemplateError(
                f"the chat template failed with {type(error).__name__}: {error}. Check the "
                "messages against what the model's template takes, or give another template."
            ) from error

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Calls within the budget; the odd names leave arguments of any name possible."""
        assert isinstance(__context, budgeted.BudgetContext)
        budget = __context.budget
        budget.spend(1)
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        if isinstance(owner, str):
            budget.spend_chars(len(owner))
            if name == "replace" and len(args) >= 2:
                budget.spend_chars(budgeted.replaced_length(owner, *args[:2]))
            elif name == "join" and args:
                args = ([str(item) for item in args[0]], *args[1:])
                budget.spend_chars(budgeted.joined_length(args[0], owner))
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, (dict, list, tuple)):
            budget.spend_value(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """An operation within the budget."""
        assert isinstance(context, budgeted.BudgetContext)
        context.budget.spend_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> None:
        """No formatting of text: jinja2's own wrapper bounds no width."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Refuses what jinja2 refuses, and the methods named above."""
        if attr in _FORBIDDEN_METHODS or attr in _PADDING_METHODS:
            return isinstance(obj, Mapping) and attr in obj
        return super().is_safe_attribute(obj, attr, value)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        _count_loops(tree)
        tree.set_environment(self)
        return tree


def _count_loops(tree: nodes.Template) -> None:
    """Makes loops count their rounds, lists and `~` their length, and text itself."""
    for loop in list(tree.find_all(nodes.For)):
        assert isinstance(loop.iter, nodes.Expr)
        loop.iter = _filtered(loop.iter, _COUNTED)
    for node in [tree, *tree.find_all(nodes.Node)]:
        for name, value in list(node.iter_fields()):
            if isinstance(value, list):
                value[:] = [_counted_node(item) for item in value]
            else:
                setattr(node, name, _counted_node(value))


def _counted_node(node: Any) -> Any:
    if isinstance(node, nodes.Concat):
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _CONCAT)
    if isinstance(node, (nodes.List, nodes.Dict)):
        return _filtered(node, _BUILT)
    if isinstance(node, nodes.Tuple) and node.ctx == "load":
        return _filtered(node, _BUILT)
    if isinstance(node, nodes.TemplateData):
        # A constant, unlike template data, goes through `finalize`.
        return nodes.Const(node.data, lineno=node.lineno)
    return node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
