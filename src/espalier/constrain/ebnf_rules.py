"""What can be said of EBNF rules before they are compiled: use, recursion, texts at all.

Knows no syntax and no library.
"""

from __future__ import annotations

from espalier.constrain.ebnf_tree import (
    Choice,
    Expression,
    Rule,
    Rules,
    Sequence,
    Times,
    inner_parts,
    rule_names,
)
from espalier.errors import UserInputError


def checked_rules(rules: Rules, root: str) -> Rules:
    """The rules that `root` uses, without what no text comes out of, those used first.

    No rule of the result uses a rule before it but for recursion. Raises UserInputError for a rule
    that is missing and for a root without texts.
    """
    for name in (root, *(used for body in rules.values() for used in rule_names(body))):
        if name not in rules:
            known = ", ".join(sorted(rules)[:20]) or "none"
            raise UserInputError(
                f"The EBNF grammar has no rule {name!r}, which it needs; its rules are: {known}."
            )
    productive = _productive(rules)
    if root not in productive:
        raise UserInputError(
            f"The EBNF grammar has no text: the rule {root!r} never ends, for each of its ways "
            "uses a rule again that does not end."
        )
    pruned = {name: _pruned(rules[name], productive) for name in rules if name in productive}
    kept = {name: body for name, body in pruned.items() if body is not None}
    return {name: kept[name] for name in _used_first(kept, root)}


def recursive_rules(rules: Rules) -> frozenset[str]:
    """Names of those `checked_rules` that use themselves, perhaps by way of others."""
    return frozenset(
        name
        for group in _components(rules)
        for name in group
        if len(group) > 1 or name in rule_names(rules[name])
    )


def _productive(rules: Rules) -> set[str]:
    """Rules with a text of finite length."""
    found: set[str] = set()
    users: dict[str, set[str]] = {name: set() for name in rules}
    for name, body in rules.items():
        for used in rule_names(body):
            users[used].add(name)
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        if name not in found and _pruned(rules[name], found) is not None:
            found.add(name)
            waiting.extend(users[name])
    return found


def _pruned(expression: Expression, productive: set[str]) -> Expression | None:
    """The expression without parts that have no text; None if nothing is left."""
    if isinstance(expression, Rule):
        return expression if expression.name in productive else None
    inner = [_pruned(part, productive) for part in inner_parts(expression)]
    left = tuple(part for part in inner if part is not None)
    if isinstance(expression, Sequence):
        return Sequence(left) if len(left) == len(inner) else None
    if isinstance(expression, Choice):
        return Choice(left) if left else None
    if isinstance(expression, Times):
        if left:
            return Times(left[0], expression.low, expression.high)
        return Sequence(()) if expression.low == 0 else None
    return expression


def _used_first(rules: Rules, root: str) -> list[str]:
    """Names that root uses, each after those that it uses, as far as recursion permits."""
    order: list[str] = []
    seen = {root}
    stack = [(root, iter(list(rule_names(rules[root]))))]
    while stack:
        name, uses = stack[-1]
        following = next((used for used in uses if used not in seen), None)
        if following is None:
            order.append(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(list(rule_names(rules[following])))))
    return order


def _components(rules: Rules) -> list[list[str]]:
    """Strongly connected groups of rules that `checked_rules` ordered (Kosaraju's algorithm)."""
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, body in rules.items():
        for used in rule_names(body):
            users[used].append(name)
    groups: list[list[str]] = []
    seen: set[str] = set()
    for start in reversed(rules):
        if start in seen:
            continue
        group, stack = [], [start]
        seen.add(start)
        while stack:
            name = stack.pop()
            group.append(name)
            new = {user for user in users[name] if user not in seen}
            seen |= new
            stack.extend(new)
        groups.append(group)
    return groups
