"""An automaton of a pattern over characters: its positions, and what may follow each.

For search in text that arrives character by character (`regex_search`); tokens and bytes are the
business of `automaton`. Knows no syntax that a pattern was written in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from espalier.constrain.code_points import code_points, includes
from espalier.constrain.pattern import (
    Alternation,
    CharClass,
    CodePoints,
    Concat,
    Literal,
    Pattern,
    Repeat,
)
from espalier.errors import CapacityError

MAX_LINKS = 4_096  # positions and members of their sets: what one character costs at most
ACCEPT = -1
_MAX_KNOWN_CHARACTERS = 10_000
_SURROGATE = re.compile("[\ud800-\udfff]")  # no text has one

Positions = frozenset[int]
Kinds = frozenset[int]


@dataclass(frozen=True, slots=True)
class PositionAutomaton:
    """Positions are the characters and classes of a pattern, counted repeats written out.

    Attributes:
        start: positions of first characters; ACCEPT among them where the empty text matches.
        kinds: of each position, the number of its character or class.
        followers: sets of positions that may come next, ACCEPT in them where a text may end.
        following: of each position, the index of its set; many share one.
    """

    start: Positions
    kinds: tuple[int, ...]
    followers: tuple[Positions, ...]
    following: tuple[int, ...]
    _characters: dict[str, int]
    _classes: tuple[tuple[int, CodePoints], ...]
    _known: dict[str, Kinds]

    def kinds_of(self, character: str) -> Kinds:
        """The kinds that a character is one of."""
        known = self._known.get(character)
        if known is None:
            if len(self._known) >= _MAX_KNOWN_CHARACTERS:
                self._known.clear()
            code_point = ord(character)
            found = {kind for kind, ranges in self._classes if includes(ranges, code_point)}
            if character in self._characters:
                found.add(self._characters[character])
            known = self._known[character] = frozenset(found)
        return known

    def step(self, positions: Positions, kinds: Kinds) -> Positions:
        """Positions after those of `positions` (no ACCEPT) that are of one of the kinds."""
        own_kinds, following = self.kinds, self.following
        reached = {following[position] for position in positions if own_kinds[position] in kinds}
        if len(reached) == 1:
            return self.followers[reached.pop()]
        return frozenset().union(*[self.followers[index] for index in reached])


def position_automaton(pattern: Pattern) -> PositionAutomaton:
    """The automaton of a pattern without `Both` and `Without`.

    Raises CapacityError beyond MAX_LINKS.
    """
    builder = _Builder()
    start = builder.resolved(builder.build(pattern, {ACCEPT}))
    followers = {id(after): builder.resolved(after) for after in builder.following}
    indices = {key: index for index, key in enumerate(followers)}
    numbers = builder.numbers.items()
    return PositionAutomaton(
        start=start,
        kinds=tuple(builder.kinds),
        followers=tuple(followers.values()),
        following=tuple(indices[id(after)] for after in builder.following),
        _characters={key: kind for key, kind in numbers if isinstance(key, str)},
        _classes=tuple((kind, key) for key, kind in numbers if isinstance(key, tuple)),
        _known={},
    )


class _Builder:
    """Builds from the end: the set of what follows a part is there before the part is.

    Only the rounds of a repeat without end follow one another; the number of the repeat, counted
    down from -2, stands for them until all is built.
    """

    def __init__(self) -> None:
        self.kinds: list[int] = []
        self.following: list[set[int]] = []
        self.numbers: dict[str | CodePoints, int] = {}
        self._rounds: list[set[int]] = []
        self._ranges: dict[int, CodePoints] = {}  # by id: a repeat builds one class many times
        self._num_links = 0

    def build(self, pattern: Pattern, after: set[int]) -> set[int]:
        """First positions of a pattern that `after` follows; none where nothing can follow."""
        if not after:
            return after
        if isinstance(pattern, Literal):
            for character in reversed(pattern.text):
                after = {self._position(character, after)}
            return after if not _SURROGATE.search(pattern.text) else set()
        if isinstance(pattern, CharClass):
            ranges = self._ranges.get(id(pattern))
            if ranges is None:
                ranges = self._ranges[id(pattern)] = code_points(pattern.ranges)
            return {self._position(ranges, after)} if ranges else set()
        if isinstance(pattern, Concat):
            for part in reversed(pattern.parts):
                after = self.build(part, after)
            return after
        if isinstance(pattern, Alternation):
            return self._joined([self.build(option, after) for option in pattern.options])
        assert isinstance(pattern, Repeat), "a pattern of sets has no positions"
        return self._repeat(pattern, after)

    def _repeat(self, pattern: Repeat, after: set[int]) -> set[int]:
        if pattern.high is None:
            index = len(self._rounds)
            self._rounds.append(set())
            first = self.build(pattern.inner, {-2 - index})
            self._rounds[index] = after = self._joined([first, after])
        else:
            for _ in range(pattern.high - pattern.low):
                self._count(1)  # inner may be empty text
                after = self._joined([self.build(pattern.inner, after), after])
        for _ in range(pattern.low):
            self._count(1)
            after = self.build(pattern.inner, after)
        return after

    def resolved(self, positions: set[int]) -> Positions:
        """The set with the positions that its numbers of repeats stand for."""
        found, waiting = set(positions), [number for number in positions if number < ACCEPT]
        while waiting:
            new = self._rounds[-2 - waiting.pop()] - found
            found |= new
            waiting += [number for number in new if number < ACCEPT]
        self._count(len(found))
        return frozenset(number for number in found if number >= ACCEPT)

    def _position(self, key: str | CodePoints, after: set[int]) -> int:
        self.kinds.append(self.numbers.setdefault(key, len(self.numbers)))
        self.following.append(after)
        self._count(1)
        return len(self.kinds) - 1

    def _joined(self, sets: list[set[int]]) -> set[int]:
        joined = set().union(*sets)
        self._count(len(joined))
        return joined

    def _count(self, num_links: int) -> None:
        self._num_links += num_links
        if self._num_links > MAX_LINKS:
            raise CapacityError(
                f"written out it has more than {MAX_LINKS} characters, classes and ways between "
                "them; count less, or make it shorter"
            )
