"""The form that a generation was asked to have, and how its text is read as a value.

Knows the arguments of `gen`; grammars are the backends' business.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.constraint import Constraint, ConstraintKind, JsonWhitespace, json_text
from espalier.errors import UserInputError, shown
from espalier.lang.options import dtype_name

MAX_EXACT_TEXTS = 64
Reader = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Form:
    """A constraint, and what makes a value of its text; `read` None: the value is the text."""

    constraint: Constraint
    read: Reader | None = None

    @property
    def is_number(self) -> bool:
        """True for dtype int and float, whose text ends where something else follows."""
        constraint = self.constraint
        return constraint.kind is ConstraintKind.DTYPE and constraint.text in ("int", "float")


def form_of(
    *,
    dtype: type | str | None = None,
    regex: str | None = None,
    json_schema: Any = None,
    ebnf: str | None = None,
    lark: str | None = None,
    tool_calls: Mapping[str, Any] | str | None = None,
    whitespace: JsonWhitespace | str | None = None,
) -> Form | None:
    """The form that the arguments of a gen ask for, None for free text.

    Raises UserInputError for two forms at once, and for values of the wrong kind.
    """
    texts = {
        ConstraintKind.DTYPE: dtype_name(dtype),
        ConstraintKind.REGEX: regex,
        ConstraintKind.EBNF: ebnf,
        ConstraintKind.LARK: lark,
        ConstraintKind.TOOL_CALLS: _json_text("tool_calls", tool_calls),
    }
    given = [kind for kind, text in texts.items() if text is not None]
    names = [kind.value for kind in given] + ["json_schema"] * (json_schema is not None)
    if len(names) > 1:
        raise UserInputError(
            f"gen was given {' and '.join(names)}; the output has one form, so leave all but one "
            "out."
        )
    if whitespace is not None and json_schema is None:
        raise UserInputError("gen was given whitespace without json_schema; leave it out.")
    if json_schema is not None:
        return _schema_form(json_schema, whitespace)
    if not given:
        return None
    text = texts[given[0]]
    assert text is not None
    return Form(Constraint(given[0], text))


def regex_choices(regex: str) -> tuple[str, ...]:
    """All texts of a regex that has at most 64; raises UserInputError for one that has more."""
    from espalier.constrain.finite_language import finite_language
    from espalier.constrain.regex_parser import parse_regex

    texts = finite_language(parse_regex(regex), MAX_EXACT_TEXTS)
    if texts is None:
        raise UserInputError(
            f"gen was given exact with the regex {shown(regex)}, which has more than "
            f"{MAX_EXACT_TEXTS} texts; leave exact out, or make the regex smaller."
        )
    return texts


def _schema_form(schema: Any, whitespace: JsonWhitespace | str | None) -> Form:
    space = JsonWhitespace.COMPACT if whitespace is None else whitespace
    read: Reader | None
    if isinstance(schema, str):
        text, read = schema, None  # as in the reference
    elif isinstance(schema, Mapping):
        text, read = json_text("json_schema", schema), json_reader
    else:
        from espalier.lang.json_types import json_type  # pydantic is a heavy library

        text, read = json_type(schema)
    return Form(Constraint(ConstraintKind.JSON_SCHEMA, text, space), read)  # type: ignore[arg-type]  # it converts


def json_reader(text: str) -> Any:
    """The value that a JSON text stands for."""
    return json.loads(text)


def _json_text(name: str, value: Mapping[str, Any] | str | None) -> str | None:
    if not isinstance(value, (str, Mapping, type(None))):
        raise UserInputError(f"{name} is {shown(value)}; a dict or JSON text is allowed.")
    return value if value is None or isinstance(value, str) else json_text(name, value)
