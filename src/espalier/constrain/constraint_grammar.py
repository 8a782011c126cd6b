"""Which module makes the grammar of which kind of constraint. Holds no state."""

from __future__ import annotations

import json
import re

from espalier.constrain.dtype import dtype_pattern
from espalier.constrain.llguidance_ebnf import ebnf_grammar
from espalier.constrain.llguidance_json import json_schema_grammar
from espalier.constrain.llguidance_lark import lark_grammar
from espalier.constrain.llguidance_regex import regex_grammar
from espalier.constrain.matcher import Grammar, MatcherTokenizer
from espalier.constraint import Constraint, ConstraintKind
from espalier.errors import UnsupportedError, UserInputError, shown


def constraint_grammar(
    constraint: Constraint, tokenizer: MatcherTokenizer, vocab_size: int
) -> Grammar:
    """Compiles a constraint; raises as GrammarCompiler.compile."""
    kind, text = constraint.kind, constraint.text
    if kind is ConstraintKind.DTYPE:
        return regex_grammar(dtype_pattern(text), tokenizer, vocab_size)
    if kind is ConstraintKind.REGEX:
        return regex_grammar(text, tokenizer, vocab_size)
    if kind is ConstraintKind.CHOICES:
        options = "|".join(map(re.escape, parsed_choices(text)))
        return regex_grammar(f"(?:{options})", tokenizer, vocab_size)
    if kind is ConstraintKind.JSON_SCHEMA:
        return json_schema_grammar(text, constraint.whitespace, tokenizer, vocab_size)
    if kind is ConstraintKind.EBNF:
        return ebnf_grammar(text, tokenizer, vocab_size)
    if kind is ConstraintKind.LARK:
        return lark_grammar(text, tokenizer, vocab_size)
    raise UnsupportedError(f"constraints of kind {kind.value!r} are not supported yet.")


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
