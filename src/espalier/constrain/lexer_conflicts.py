"""Finds terminals that a greedy lexer would match too far: LL(1)-like follow sets and positions.

A terminal conflicts if one of its texts begins with a text of some terminal and goes on with a
character that may follow that one in the grammar. Which terminals the parser allows together is not
looked at, and counted repeats are taken for unbounded ones; both only find more conflicts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from espalier.constrain.ebnf_tree import (
    Choice,
    Expression,
    OneOf,
    Rule,
    Rules,
    Sequence,
    Text,
    Times,
    inner_parts,
)


def conflicting_terminals(root: str, rules: Rules, terminals: Rules) -> set[str]:
    """Names of terminals that could be matched too far; `rules` hold names only."""
    alphabet = _Alphabet(terminals.values())
    automata = {name: _Positions(alphabet, body) for name, body in terminals.items()}
    following = _follow_sets(
        root, rules, {name: automaton.first_characters for name, automaton in automata.items()}
    )
    return {
        longer_name
        for longer_name, longer in automata.items()
        if any(longer.follow)
        and any(
            _goes_too_far(shorter, longer, following[shorter_name])
            for shorter_name, shorter in automata.items()
            if following[shorter_name]
        )
    }


class _Alphabet:
    """Sets of characters as bits: one for each of the ranges that no class divides."""

    def __init__(self, expressions: Iterable[Expression]) -> None:
        edges = set()
        stack = list(expressions)
        while stack:
            expression = stack.pop()
            stack.extend(inner_parts(expression))
            for low, high in _ranges(expression):
                edges |= {low, high + 1}
        self._edges = sorted(edges)

    def bits(self, ranges: Iterable[tuple[int, int]]) -> int:
        found = 0
        for low, high in ranges:
            first, end = bisect_left(self._edges, low), bisect_left(self._edges, high + 1)
            found |= (1 << end) - (1 << first)
        return found


def _ranges(expression: Expression) -> list[tuple[int, int]]:
    if isinstance(expression, OneOf):
        return list(expression.ranges)
    if isinstance(expression, Text):
        return [(ord(letter), ord(letter)) for letter in expression.text]
    return []


@dataclass(slots=True)
class _Part:
    """Of a part of a terminal: may it be empty, which positions begin it, which end it."""

    is_nullable: bool
    first: set[int] = field(default_factory=set)
    last: set[int] = field(default_factory=set)


class _Positions:
    """The position automaton of a terminal (Glushkov 1961): states are its characters."""

    def __init__(self, alphabet: _Alphabet, expression: Expression) -> None:
        self._alphabet = alphabet
        self.characters: list[int] = []  # of each position, as bits
        self.follow: list[set[int]] = []  # positions after each
        whole = self._part(expression)
        self.first, self.last = whole.first, whole.last
        self.first_characters = self.any_of(self.first)

    def any_of(self, positions: Iterable[int]) -> int:
        """Characters of some positions together."""
        found = 0
        for position in positions:
            found |= self.characters[position]
        return found

    def _part(self, expression: Expression) -> _Part:
        if isinstance(expression, OneOf):
            return self._character(expression.ranges)
        if isinstance(expression, Text):
            letters = [self._character([(ord(one), ord(one))]) for one in expression.text]
            return self._joined(letters)
        if isinstance(expression, Sequence):
            return self._joined(map(self._part, expression.parts))
        inner = list(map(self._part, inner_parts(expression)))
        if isinstance(expression, Choice):
            return _Part(
                any(part.is_nullable for part in inner),
                set().union(*(part.first for part in inner)),
                set().union(*(part.last for part in inner)),
            )
        assert isinstance(expression, Times), "a terminal holds no rule"
        if expression.high == 0:
            return _Part(is_nullable=True)
        if expression.high != 1:
            self._link(inner[0].last, inner[0].first)
        return _Part(expression.low == 0 or inner[0].is_nullable, inner[0].first, inner[0].last)

    def _character(self, ranges: Iterable[tuple[int, int]]) -> _Part:
        self.characters.append(self._alphabet.bits(ranges))
        self.follow.append(set())
        position = {len(self.follow) - 1}
        return _Part(False, position, position)

    def _joined(self, parts: Iterable[_Part]) -> _Part:
        whole = _Part(is_nullable=True)
        for part in parts:
            self._link(whole.last, part.first)
            whole = _Part(
                whole.is_nullable and part.is_nullable,
                whole.first | part.first if whole.is_nullable else whole.first,
                whole.last | part.last if part.is_nullable else part.last,
            )
        return whole

    def _link(self, ends: set[int], starts: set[int]) -> None:
        for position in ends:
            self.follow[position] |= starts


def _goes_too_far(shorter: _Positions, longer: _Positions, following: int) -> bool:
    """A text of `shorter` begins one of `longer`, whose next character is in `following`."""
    waiting = [(one, other) for one in shorter.first for other in longer.first]
    seen = set(waiting)
    while waiting:
        one, other = waiting.pop()
        if not shorter.characters[one] & longer.characters[other]:
            continue
        if one in shorter.last and longer.any_of(longer.follow[other]) & following:
            return True
        for pair in ((a, b) for a in shorter.follow[one] for b in longer.follow[other]):
            if pair not in seen:
                seen.add(pair)
                waiting.append(pair)
    return False


def _follow_sets(root: str, rules: Rules, first_of: dict[str, int]) -> dict[str, int]:
    """Characters that may follow each terminal, as bits; `first_of` has those that begin it."""
    return _FollowSets(rules, first_of).of_terminals(root)


class _FollowSets:
    """First and follow sets of rules, to their fixed point."""

    def __init__(self, rules: Rules, first_of: dict[str, int]) -> None:
        self._rules = rules
        self._first = dict(first_of)
        self._terminals = list(first_of)
        self._nullable: set[str] = set()
        self._visited: set[str] = set()
        self._follow = dict.fromkeys([*rules, *first_of], 0)
        self._first.update(dict.fromkeys(rules, 0))
        has_changed = True
        while has_changed:
            has_changed = False
            for name, body in rules.items():
                first, is_nullable = self._begin(body)
                if first != self._first[name] or is_nullable != (name in self._nullable):
                    has_changed = True
                    self._first[name] = first
                    self._nullable |= {name} if is_nullable else set()

    def of_terminals(self, root: str) -> dict[str, int]:
        waiting, seen = [root], {root}
        while waiting:
            name = waiting.pop()
            seen.discard(name)
            for changed in self._spread(self._rules[name], self._follow[name]):
                if changed in self._rules and changed not in seen:
                    seen.add(changed)
                    waiting.append(changed)
        return {name: self._follow[name] for name in self._terminals}

    def _begin(self, expression: Expression) -> tuple[int, bool]:
        """Characters that begin the expression, and whether it may be empty."""
        if isinstance(expression, Rule):
            return self._first[expression.name], expression.name in self._nullable
        if isinstance(expression, Sequence):
            found = 0
            for part in expression.parts:
                first, is_nullable = self._begin(part)
                found |= first
                if not is_nullable:
                    return found, False
            return found, True
        begins = [self._begin(part) for part in inner_parts(expression)]
        found = 0
        for first, _ in begins:
            found |= first
        is_optional = isinstance(expression, Times) and expression.low == 0
        return found, is_optional or any(is_nullable for _, is_nullable in begins)

    def _spread(self, expression: Expression, after: int) -> list[str]:
        """Adds what may come after to the names inside; returns names that got something new."""
        if isinstance(expression, Rule):
            # A rule is visited once even if nothing follows it.
            is_new = after & ~self._follow[expression.name] or expression.name not in self._visited
            self._visited.add(expression.name)
            self._follow[expression.name] |= after
            return [expression.name] if is_new else []
        changed: list[str] = []
        if isinstance(expression, Sequence):
            for part in reversed(expression.parts):
                changed += self._spread(part, after)
                first, is_nullable = self._begin(part)
                after = first | after if is_nullable else first
            return changed
        if isinstance(expression, Times) and expression.high != 1:
            after |= self._begin(expression.inner)[0]
        for part in inner_parts(expression):
            changed += self._spread(part, after)
        return changed
