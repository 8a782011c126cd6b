"""Which module makes the grammar of which kind of constraint. Holds no state."""

from __future__ import annotations

import json
from contextlib import suppress

from espalier.constrain.automaton import AutomatonGrammar
from espalier.constrain.dtype import dtype_pattern
from espalier.constrain.ebnf import ebnf_grammar
from espalier.constrain.finite_language import choices_pattern
from espalier.constrain.llguidance_json import json_schema_grammar
from espalier.constrain.llguidance_lark import lark_grammar
from espalier.constrain.matcher import Grammar, MatcherTokenizer
from espalier.constrain.regex_parser import parse_regex
from espalier.constrain.schema import (
    NotRegular,
    bounded_schema_pattern,
    check_schema,
    llguidance_enforces,
    schema_pattern,
)
from espalier.constrain.tool_calls import tool_calls_grammar
from espalier.constraint import Constraint, ConstraintKind, JsonWhitespace
from espalier.errors import CapacityError, UserInputError, shown


def constraint_grammar(
    constraint: Constraint, tokenizer: MatcherTokenizer, vocab_size: int
) -> Grammar:
    """Compiles a constraint; raises as GrammarCompiler.compile."""
    kind, text = constraint.kind, constraint.text
    if kind is ConstraintKind.DTYPE:
        return AutomatonGrammar(parse_regex(dtype_pattern(text)), tokenizer, vocab_size)
    if kind is ConstraintKind.REGEX:
        return AutomatonGrammar(parse_regex(text), tokenizer, vocab_size)
    if kind is ConstraintKind.CHOICES:
        return AutomatonGrammar(choices_pattern(parsed_choices(text)), tokenizer, vocab_size)
    if kind is ConstraintKind.JSON_SCHEMA:
        return schema_grammar(text, constraint.whitespace, tokenizer, vocab_size)
    if kind is ConstraintKind.EBNF:
        return ebnf_grammar(text, tokenizer, vocab_size)
    if kind is ConstraintKind.LARK:
        return lark_grammar(text, tokenizer, vocab_size)
    assert kind is ConstraintKind.TOOL_CALLS
    return tool_calls_grammar(text, tokenizer, vocab_size)


def schema_grammar(
    text: str, whitespace: JsonWhitespace, tokenizer: MatcherTokenizer, vocab_size: int
) -> Grammar:
    """A schema by our own automaton, or by llguidance where its values nest without end.

    Where llguidance would not enforce all of such a schema, values nest to a bound.
    """
    checked = check_schema(text)
    try:
        pattern = schema_pattern(checked, whitespace)
    except NotRegular:
        if whitespace is not JsonWhitespace.PRETTY and llguidance_enforces(checked):
            # What the library does not read may have a pattern up to a bound.
            with suppress(UserInputError, CapacityError):
                return json_schema_grammar(text, whitespace, tokenizer, vocab_size)
        pattern = bounded_schema_pattern(checked, whitespace)
    return AutomatonGrammar(pattern, tokenizer, vocab_size)


def parsed_choices(text: str) -> tuple[str, ...]:
    """The texts of a CHOICES constraint, in order. Raises UserInputError."""
    try:
        choices = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserInputError(f"The choices are no JSON: {error}.") from None
    if not isinstance(choices, list) or not all(isinstance(item, str) for item in choices):
        raise UserInputError(f"The choices are {shown(choices)}; a list of texts is allowed.")
    if not choices:
        raise UserInputError("The list of choices is empty; at least one text is needed.")
    return tuple(choices)
