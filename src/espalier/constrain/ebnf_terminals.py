"""Cuts EBNF rules into terminals that a lexer may match greedily without losing a text.

A lexer that takes the longest terminal loses a text where a terminal could end, and go on with what
follows it, while a longer one begins in the same way. Terminals are made as large as possible (the
parser then has little to do) and cut where `lexer_conflicts` finds that this could happen; single
characters never conflict. Knows no syntax and no library.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from espalier.constrain.ebnf_rules import recursive_rules
from espalier.constrain.ebnf_tree import (
    Choice,
    Expression,
    Rule,
    Rules,
    Sequence,
    Text,
    Times,
    inner_parts,
)
from espalier.constrain.lexer_conflicts import conflicting_terminals

MAX_TERMINAL_SIZE = 300  # characters and classes
MAX_TERMINAL_DEPTH = 40

_NOTHING = Sequence(())


@dataclass(frozen=True, slots=True)
class CutGrammar:
    """Rules of names only (Sequence, Choice, Times and Rule), and the terminals among the names.

    Terminals hold no Rule and match no empty text.
    """

    root: str
    rules: Rules
    terminals: Rules


def cut_terminals(rules: Rules, root: str) -> CutGrammar:
    """Cuts rules that `checked_rules` returned."""
    flat = _flat_rules(rules)
    split: set[Expression] = set()
    while True:
        cut = _Cutter(rules, flat, split).cut(root)
        conflicting = conflicting_terminals(cut.root, cut.rules, cut.terminals)
        if not conflicting:
            return cut
        split |= {cut.terminals[name] for name in conflicting}


def _flat_rules(rules: Rules) -> Rules:
    """Rules without recursion that are small enough to be a terminal, with no names left."""
    recursive = recursive_rules(rules)
    flat: Rules = {}
    for name, body in rules.items():
        if name not in recursive:
            expression = _flattened(body, flat)
            if expression is not None:
                flat[name] = expression
    return flat


def _flattened(expression: Expression, flat: Rules) -> Expression | None:
    """The expression with rules replaced, None where it would be too large."""
    replaced = _replaced(expression, flat)
    if replaced is None or _size(replaced) > MAX_TERMINAL_SIZE:
        return None
    return replaced if _depth(replaced) <= MAX_TERMINAL_DEPTH else None


def _replaced(expression: Expression, flat: Rules) -> Expression | None:
    if isinstance(expression, Rule):
        return flat.get(expression.name)
    parts = [_replaced(part, flat) for part in inner_parts(expression)]
    known = tuple(part for part in parts if part is not None)
    if len(known) < len(parts):
        return None
    if isinstance(expression, Sequence):
        return Sequence(known)
    if isinstance(expression, Choice):
        return Choice(known)
    if isinstance(expression, Times):
        return Times(known[0], expression.low, expression.high)
    return expression


def _size(expression: Expression) -> int:
    if isinstance(expression, Text):
        return len(expression.text)
    return 1 + sum(map(_size, inner_parts(expression)))


def _depth(expression: Expression) -> int:
    return 1 + max(map(_depth, inner_parts(expression)), default=0)


def is_nullable(expression: Expression) -> bool:
    """True for a flat expression with the empty text."""
    if isinstance(expression, Text):
        return not expression.text
    if isinstance(expression, Sequence):
        return all(map(is_nullable, expression.parts))
    if isinstance(expression, Choice):
        return any(map(is_nullable, expression.options))
    if isinstance(expression, Times):
        return expression.low == 0 or is_nullable(expression.inner)
    return False


def without_empty(expression: Expression) -> Expression | None:
    """A flat expression of the same texts but the empty one; None if none is left."""
    if not is_nullable(expression):
        return expression
    if isinstance(expression, Times):
        inner = without_empty(expression.inner) if expression.high != 0 else None
        return None if inner is None else Times(inner, 1, expression.high)
    if isinstance(expression, Choice):
        options = [without_empty(option) for option in expression.options]
    elif isinstance(expression, Sequence):
        options = []  # the first part that is not empty, and what follows it
        for index, part in enumerate(expression.parts):
            first = without_empty(part)
            options.append(first and Sequence((first, *expression.parts[index + 1 :])))
    else:
        return None
    left = tuple(dict.fromkeys(option for option in options if option is not None))
    if len(left) <= 1:
        return left[0] if left else None
    return Choice(left)


@dataclass(slots=True)
class _Cutter:
    """One way to cut: as large as possible but for the terminals in `split`."""

    given: Rules
    flat: Rules
    split: set[Expression]
    rules: Rules = field(default_factory=dict)
    names: dict[Expression, str] = field(default_factory=dict)  # of terminals
    waiting: list[str] = field(default_factory=list)

    def cut(self, root: str) -> CutGrammar:
        self.waiting.append(root)
        while self.waiting:
            name = self.waiting.pop()
            if name not in self.rules:
                self.rules[name] = _NOTHING  # so that its own uses find it
                self.rules[name] = self._cut(self.given[name])
        terminals = {name: expression for expression, name in self.names.items()}
        return CutGrammar(root, self.rules, terminals)

    def _cut(self, expression: Expression) -> Expression:
        flat = _flattened(expression, self.flat)
        if flat is None:
            return self._parts(expression)
        if not is_nullable(flat):
            return self._terminal(flat)
        rest = without_empty(flat)
        return _NOTHING if rest is None else Times(self._terminal(rest), 0, 1)

    def _terminal(self, flat: Expression) -> Expression:
        if flat in self.split:
            return self._parts(flat)
        return Rule(self.names.setdefault(flat, f"%{len(self.names)}"))

    def _parts(self, expression: Expression) -> Expression:
        if isinstance(expression, Rule):
            self.waiting.append(expression.name)
            return expression
        if isinstance(expression, Text):
            return Sequence(tuple(self._cut(Text(letter)) for letter in expression.text))
        if isinstance(expression, Times):
            return Times(self._cut(expression.inner), expression.low, expression.high)
        if isinstance(expression, Choice):
            return self._options(expression)
        assert isinstance(expression, Sequence)
        parts: list[Expression] = []
        for run in self._runs(expression.parts):
            joined = Sequence(tuple(run))
            flat = _flattened(joined, self.flat) if len(run) > 1 else None
            if flat is None or flat in self.split or without_empty(flat) in self.split:
                parts.extend(map(self._cut, run))
            else:
                parts.append(self._cut(joined))
        return Sequence(tuple(parts))

    def _runs(self, parts: tuple[Expression, ...]) -> list[list[Expression]]:
        """Neighbours that could be one terminal, together."""
        runs: list[list[Expression]] = [[]]
        for part in parts:
            if _flattened(part, self.flat) is not None:
                runs[-1].append(part)
            else:
                runs += [[part], []]
        return [run for run in runs if run]

    def _options(self, choice: Choice) -> Expression:
        """The options, those that could be one terminal together."""
        flat = [option for option in choice.options if _flattened(option, self.flat) is not None]
        joined = _flattened(Choice(tuple(flat)), self.flat) if len(flat) > 1 else None
        if joined is None or joined in self.split or without_empty(joined) in self.split:
            return Choice(tuple(map(self._cut, choice.options)))
        rest = [self._cut(option) for option in choice.options if option not in flat]
        together = self._cut(Choice(tuple(flat)))
        return Choice((together, *rest)) if rest else together
