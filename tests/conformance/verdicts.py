"""What becomes of a schema and of its instances, token by token."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.conformance.json_suite import Case, Instance
from tests.conformance.spellings import spellings
from tests.constrain.tiny_vocabulary import TinyTokenizer

from espalier.constrain.automaton import AutomatonGrammar
from espalier.constrain.constraint_grammar import constraint_grammar
from espalier.constrain.matcher import Grammar
from espalier.constrain.schema import MAX_RECURSION, NotRegular, check_schema, schema_pattern
from espalier.constraint import Constraint, ConstraintKind, JsonWhitespace
from espalier.errors import UserInputError

# Every byte, and tokens that cross the parts of JSON.
_PIECES = [b"<end>", *(bytes([byte]) for byte in range(256)), b'{"', b'":', b'","', b'"}', b"],["]
_TOKENIZER = TinyTokenizer(_PIECES, {0}, {0})
_LONG_IDS = range(257, len(_PIECES))

PATTERN, BOUNDED, LIBRARY, NO_VALUE = "pattern", "bounded pattern", "llguidance", "no value"
HANDLINGS = (PATTERN, BOUNDED, LIBRARY, NO_VALUE)


@dataclass(slots=True)
class Verdict:
    """How a schema is handled, and what happened to its instances.

    Attributes:
        handling: one of HANDLINGS, or the keyword for which the schema is refused.
        false_accepts: invalid instances that were accepted.
        false_rejects: valid instances that were not, with the reason why.
    """

    handling: str
    false_accepts: list[str] = field(default_factory=list)
    false_rejects: dict[str, str] = field(default_factory=dict)


def judged(case: Case) -> Verdict:
    """Compiles a case's schema and tries its instances."""
    try:
        grammar = byte_grammar(case.schema)
    except UserInputError as error:
        return Verdict(_refused_keyword(str(error)))
    verdict = Verdict(_handling(case, grammar))
    for instance in case.instances:
        _try(instance, case, grammar, verdict)
    return verdict


def byte_grammar(
    schema: str | dict[str, Any], whitespace: JsonWhitespace = JsonWhitespace.COMPACT
) -> Grammar:
    """The grammar of a schema, as the engine compiles it, over bytes and a few longer tokens."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    form = Constraint(ConstraintKind.JSON_SCHEMA, text, whitespace)
    return constraint_grammar(form, _TOKENIZER, len(_PIECES))


def accepts(grammar: Grammar, text: str) -> bool:
    """The text is one of the grammar's, by masks alone, in the longest tokens that there are."""
    matcher = grammar.matcher()
    data = text.encode()
    at = 0
    while at < len(data):
        longer = (i for i in _LONG_IDS if data.startswith(_PIECES[i], at))
        token_id = next(longer, data[at] + 1)
        if not matcher.mask()[token_id // 32] >> (token_id % 32) & 1:
            return False
        matcher.accept(token_id)
        at += len(_PIECES[token_id])
    return matcher.is_complete


def _handling(case: Case, grammar: Grammar) -> str:
    if not isinstance(grammar, AutomatonGrammar):
        return LIBRARY
    try:
        schema_pattern(check_schema(case.schema))
    except NotRegular:
        return BOUNDED
    return PATTERN


def _try(instance: Instance, case: Case, grammar: Grammar, verdict: Verdict) -> None:
    accepted = any(accepts(grammar, text) for text in spellings(instance.data))
    if accepted and not instance.valid:
        verdict.false_accepts.append(instance.description)
    if instance.valid and not accepted:
        reason = next((name for name, holds in REASONS.items() if holds(case, instance)), "?")
        verdict.false_rejects[instance.description] = reason


def _refused_keyword(message: str) -> str:
    if "allows no value" in message:
        return NO_VALUE
    found = re.match(r"JSON schema: '([^']+)'", message)
    assert found, message
    return found[1]


def _has_whole_decimal(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_whole_decimal, value))
    return isinstance(value, Decimal) and value % 1 == 0


def _depth(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, items), default=0) if isinstance(value, (dict, list)) else 0


# Why a valid instance may be rejected, and whether that can be so.
REASONS: dict[str, Callable[[Case, Instance], bool]] = {
    "a format is asserted": lambda case, _: case.file == "format.json",
    "only some texts of the format": lambda case, _: "/format/" in case.file,
    "an integer with a point": lambda _, instance: _has_whole_decimal(instance.data),
    "deeper than the bound": lambda _, instance: _depth(instance.data) > MAX_RECURSION,
}
