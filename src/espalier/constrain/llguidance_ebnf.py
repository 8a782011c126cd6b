"""EBNF grammars by the llguidance library, whose dialect of Lark lexes greedily and EBNF does not.

The library ships a translation of its own, which loses texts (of `root ::= [a-z]* "x"`, say, all);
here terminals are cut so that greediness loses none. Owns the spelling in the library's Lark.
"""

from __future__ import annotations

from espalier.constrain.ebnf_terminals import CutGrammar, cut_terminals
from espalier.constrain.ebnf_tree import (
    Choice,
    Expression,
    OneOf,
    Rule,
    Rules,
    Sequence,
    Text,
    Times,
)
from espalier.constrain.llguidance_grammar import LlguidanceGrammar
from espalier.constrain.matcher import MatcherTokenizer


def rules_grammar(
    rules: Rules, root: str, tokenizer: MatcherTokenizer, vocab_size: int | None = None
) -> LlguidanceGrammar:
    """Texts of a rule among `checked_rules`, exactly. Raises as LlguidanceGrammar."""
    lark = lark_source(cut_terminals(rules, root))
    return LlguidanceGrammar(lark, tokenizer, vocab_size, what="The EBNF grammar")


def lark_source(cut: CutGrammar) -> str:
    """The grammar in the library's dialect of Lark."""
    names = {name: f"r{index}" for index, name in enumerate(cut.rules)}
    names.update({name: f"T{name.removeprefix('%')}" for name in cut.terminals})
    lines = [f"start: {names[cut.root]}"]
    lines += [f"{names[name]}: {_structure(body, names)}" for name, body in cut.rules.items()]
    lines += [f"{names[name]}: /{_regex(body)}/" for name, body in cut.terminals.items()]
    return "\n".join(lines)


def _structure(expression: Expression, names: dict[str, str]) -> str:
    if isinstance(expression, Rule):
        return names[expression.name]
    if isinstance(expression, Times):
        inner = _structure(expression.inner, names)
        return f"({inner}){_counts(expression)}"
    if isinstance(expression, Choice):
        return f"({' | '.join(_structure(option, names) for option in expression.options)})"
    assert isinstance(expression, Sequence), "characters are in terminals"
    return " ".join(_structure(part, names) for part in expression.parts) or '""'


def _regex(expression: Expression) -> str:
    if isinstance(expression, Text):
        return "".join(map(_escaped, map(ord, expression.text)))
    if isinstance(expression, OneOf):
        spans = (f"{_escaped(low)}-{_escaped(high)}" for low, high in expression.ranges)
        return f"[{''.join(spans)}]"
    if isinstance(expression, Times):
        return f"(?:{_regex(expression.inner)}){_counts(expression)}"
    if isinstance(expression, Choice):
        return f"(?:{'|'.join(map(_regex, expression.options))})"
    assert isinstance(expression, Sequence), "a terminal holds no rule"
    return "".join(map(_regex, expression.parts))


def _escaped(character: int) -> str:
    letter = chr(character)
    return letter if letter.isascii() and letter.isalnum() else f"\\x{{{character:x}}}"


def _counts(times: Times) -> str:
    if times.high is None:
        return {0: "*", 1: "+"}.get(times.low, f"{{{times.low},}}")
    return "?" if (times.low, times.high) == (0, 1) else f"{{{times.low},{times.high}}}"
