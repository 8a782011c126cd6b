"""Texts and beginnings of texts of an EBNF grammar by definition, with fixed points over rules."""

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

Ends = dict[tuple[str, int], set[int]]  # rule and start -> where its texts from there end


class NaiveGrammar:
    """Answers by definition. Only for a few rules and short texts."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._productive: set[str] = set()  # rules that have a text
        while True:
            found = {name for name in rules if self._has_text(rules[name])}
            if found == self._productive:
                break
            self._productive = found

    def has(self, text: str) -> bool:
        """The text is one of the rule `root`."""
        return len(text) in self._ends_of_rules(text)["root", 0]

    def begins(self, text: str) -> bool:
        """Some text of the rule `root` begins with this one."""
        ends = self._ends_of_rules(text)
        known: set[tuple[str, int]] = set()
        while True:
            found = {
                (name, start)
                for name in self._rules
                for start in range(len(text) + 1)
                if self._begun(self._rules[name], text, start, ends, known)
            }
            if found == known:
                return ("root", 0) in known
            known = found

    def _has_text(self, expression: Expression) -> bool:
        if isinstance(expression, Rule):
            return expression.name in self._productive
        if isinstance(expression, Sequence):
            return all(map(self._has_text, expression.parts))
        if isinstance(expression, Choice):
            return any(map(self._has_text, expression.options))
        if isinstance(expression, Times):
            return expression.low == 0 or self._has_text(expression.inner)
        return True

    def _ends_of_rules(self, text: str) -> Ends:
        ends: Ends = {
            (name, start): set() for name in self._rules for start in range(len(text) + 1)
        }
        while True:
            found = {
                (name, start): _ends(self._rules[name], text, start, ends) for name, start in ends
            }
            if found == ends:
                return ends
            ends = found

    def _begun(
        self, expression: Expression, text: str, start: int, ends: Ends, known: set[tuple[str, int]]
    ) -> bool:
        """All of the text from `start` on is the beginning of a text of the expression."""
        if isinstance(expression, Rule):
            return (expression.name, start) in known
        if isinstance(expression, Text):
            return expression.text.startswith(text[start:])
        if isinstance(expression, OneOf):
            rest = text[start:]
            return not rest or (len(rest) == 1 and 1 in _ends(expression, rest, 0, ends))
        if isinstance(expression, Choice):
            return any(self._begun(part, text, start, ends, known) for part in expression.options)
        if isinstance(expression, Times):
            return self._begun_times(expression, text, start, ends, known)
        return self._begun_parts(expression.parts, text, start, ends, known)

    def _begun_parts(
        self,
        parts: tuple[Expression, ...],
        text: str,
        start: int,
        ends: Ends,
        known: set[tuple[str, int]],
    ) -> bool:
        if not all(map(self._has_text, parts)):
            return False
        if not parts:
            return start == len(text)
        after = _ends(parts[0], text, start, ends)
        return self._begun(parts[0], text, start, ends, known) or any(
            self._begun_parts(parts[1:], text, end, ends, known) for end in after
        )

    def _begun_times(
        self, times: Times, text: str, start: int, ends: Ends, known: set[tuple[str, int]]
    ) -> bool:
        if not self._has_text(times.inner):
            return times.low == 0 and start == len(text)
        reached = {start}
        for _ in range(_rounds(times, text)):
            if any(self._begun(times.inner, text, end, ends, known) for end in reached):
                return True
            reached |= _ends_of_any(times.inner, text, reached, ends)
        return len(text) in reached


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
    reached = {start}
    if isinstance(expression, Sequence):
        for part in expression.parts:
            reached = _ends_of_any(part, text, reached, ends)
        return reached
    found_ends: set[int] = set()
    for count in range(_rounds(expression, text) + 1):
        if count >= expression.low:
            found_ends |= reached
        reached = _ends_of_any(expression.inner, text, reached, ends)
    return found_ends


def _ends_of_any(part: Expression, text: str, starts: set[int], ends: Ends) -> set[int]:
    return {end for start in starts for end in _ends(part, text, start, ends)}


def _rounds(times: Times, text: str) -> int:
    """How often the inner part is tried: more than characters adds nothing but empty texts."""
    return times.low + len(text) + 1 if times.high is None else times.high
