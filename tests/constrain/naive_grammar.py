"""Membership of texts in an EBNF grammar by its definition: spans of rules to their fixed point."""

from __future__ import annotations

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

Ends = dict[tuple[str, int], set[int]]


def is_in_language(rules: Rules, root: str, text: str) -> bool:
    """The whole text is a text of `root`."""
    ends: Ends = {(name, start): set() for name in rules for start in range(len(text) + 1)}
    has_changed = True
    while has_changed:
        has_changed = False
        for (name, start), known in ends.items():
            found = _ends(rules[name], text, start, ends)
            if not found <= known:
                ends[name, start] = known | found
                has_changed = True
    return len(text) in ends[root, 0]


def _ends(expression: Expression, text: str, start: int, ends: Ends) -> set[int]:
    """Where texts of the expression from `start` on end, as far as is known of the rules."""
    if isinstance(expression, Rule):
        return ends[expression.name, start]
    if isinstance(expression, Text):
        found = text.startswith(expression.text, start)
        return {start + len(expression.text)} if found else set()
    if isinstance(expression, OneOf):
        is_one = start < len(text) and any(
            low <= ord(text[start]) <= high for low, high in expression.ranges
        )
        return {start + 1} if is_one else set()
    if isinstance(expression, Choice):
        return {end for part in expression.options for end in _ends(part, text, start, ends)}
    if isinstance(expression, Sequence):
        reached = {start}
        for part in expression.parts:
            reached = {end for one in reached for end in _ends(part, text, one, ends)}
        return reached
    return _ends_of_times(expression, text, start, ends)


def _ends_of_times(times: Times, text: str, start: int, ends: Ends) -> set[int]:
    found: set[int] = set()
    reached = {start}
    # More rounds than characters add nothing but empty texts.
    rounds = times.low + len(text) + 1 if times.high is None else times.high
    for count in range(rounds + 1):
        if count >= times.low:
            found |= reached
        reached = {end for one in reached for end in _ends(times.inner, text, one, ends)}
    return found
