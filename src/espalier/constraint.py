"""The form that an output must have, as a caller states it: a leaf value, not yet compiled.

Knows no grammar and no tokenizer; `constrain` compiles it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from espalier.errors import UserInputError, shown


class ConstraintKind(str, Enum):
    """What the text of a Constraint is.

    DTYPE: "int", "float", "bool" or "str". REGEX: a regular expression. CHOICES: a JSON list of
    texts. JSON_SCHEMA: a schema as JSON text. EBNF: a grammar with a rule `root`, as SGLang and
    llama.cpp write them. LARK: a grammar in llguidance's dialect of Lark. TOOL_CALLS: a JSON
    object, see constrain/tool_calls.py.
    """

    DTYPE = "dtype"
    REGEX = "regex"
    CHOICES = "choices"
    JSON_SCHEMA = "json_schema"
    EBNF = "ebnf"
    LARK = "lark"
    TOOL_CALLS = "tool_calls"


class JsonWhitespace(str, Enum):
    """Space between the parts of JSON that a schema constrains; it is decided, never left open.

    COMPACT: none. SPACED: one after each colon and comma, as `json.dumps` writes. PRETTY: lines
    indented by two, as `json.dumps(indent=2)` writes.
    """

    COMPACT = "compact"
    SPACED = "spaced"
    PRETTY = "pretty"


@dataclass(frozen=True, slots=True)
class Constraint:
    """One form: its kind and the text that states it. Equal values share one compiled grammar.

    Raises UserInputError for a value of the wrong kind.
    """

    kind: ConstraintKind
    text: str
    whitespace: JsonWhitespace = JsonWhitespace.COMPACT

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", ConstraintKind(self.kind))
        if not isinstance(self.text, str):
            raise UserInputError(f"the {self.kind.value} is {shown(self.text)}; text is allowed.")
        try:
            whitespace = JsonWhitespace(self.whitespace)
        except ValueError:
            allowed = ", ".join(repr(item.value) for item in JsonWhitespace)
            raise UserInputError(
                f"whitespace is {shown(self.whitespace)}; {allowed} are allowed."
            ) from None
        object.__setattr__(self, "whitespace", whitespace)


def json_text(name: str, value: Any, error: type[UserInputError] = UserInputError) -> str:
    """The JSON text of what was given as `name`; raises `error` for what is no JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as cause:
        raise error(f"{name} is {shown(value)}, which is no JSON: {cause}.") from cause
