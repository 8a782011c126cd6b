"""EBNF grammars: Espalier's own automaton where no rule uses itself, else the llguidance library.

Owns that choice and the pattern of rules without recursion.
"""

from __future__ import annotations

from espalier.constrain.automaton import AutomatonGrammar
from espalier.constrain.ebnf_parser import parse_ebnf
from espalier.constrain.ebnf_rules import checked_rules, recursive_rules
from espalier.constrain.ebnf_tree import (
    Choice,
    Expression,
    OneOf,
    Rule,
    Rules,
    Sequence,
    Text,
    inner_parts,
)
from espalier.constrain.llguidance_ebnf import rules_grammar
from espalier.constrain.matcher import Grammar, MatcherTokenizer
from espalier.constrain.pattern import (
    Alternation,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
)

ROOT = "root"
MAX_PATTERN_PARTS = 5_000
MAX_PATTERN_DEPTH = 200


def ebnf_grammar(text: str, tokenizer: MatcherTokenizer, vocab_size: int | None = None) -> Grammar:
    """Texts of the rule `root`, exactly.

    Raises UserInputError for a grammar that is not understood or that no text matches,
    UnsupportedError for what only single dialects know, CapacityError for one beyond the limits.
    """
    rules = checked_rules(parse_ebnf(text), ROOT)
    pattern = rules_pattern(rules)
    if pattern is None:
        return rules_grammar(rules, ROOT, tokenizer, vocab_size)
    return AutomatonGrammar(pattern, tokenizer, vocab_size)


def rules_pattern(rules: Rules) -> Pattern | None:
    """The pattern of the rule `root` of `checked_rules`; None for recursion and large ones."""
    if recursive_rules(rules):
        return None
    patterns: dict[str, Pattern] = {}
    sizes: dict[str, tuple[int, int]] = {}  # parts and depth, with the rules that a rule uses
    for name, body in rules.items():
        num_parts, depth = sizes[name] = _size(body, sizes)
        if num_parts > MAX_PATTERN_PARTS or depth > MAX_PATTERN_DEPTH:
            return None
        patterns[name] = _pattern(body, patterns)
    return patterns[ROOT]


def _size(expression: Expression, sizes: dict[str, tuple[int, int]]) -> tuple[int, int]:
    if isinstance(expression, Rule):
        return sizes[expression.name]
    if isinstance(expression, Text):
        return 1 + len(expression.text), 1
    if isinstance(expression, OneOf):
        return 1, 1
    found = [_size(part, sizes) for part in inner_parts(expression)]
    return 1 + sum(parts for parts, _ in found), 1 + max((depth for _, depth in found), default=0)


def _pattern(expression: Expression, patterns: dict[str, Pattern]) -> Pattern:
    if isinstance(expression, Rule):
        return patterns[expression.name]
    if isinstance(expression, Text):
        return Literal(expression.text)
    if isinstance(expression, OneOf):
        return CharClass(expression.ranges)
    if isinstance(expression, Sequence):
        return Concat(tuple(_pattern(part, patterns) for part in expression.parts))
    if isinstance(expression, Choice):
        return Alternation(tuple(_pattern(part, patterns) for part in expression.options))
    return Repeat(_pattern(expression.inner, patterns), expression.low, expression.high)
