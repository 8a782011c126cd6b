"""Search for a pattern in text that arrives character by character, with where its matches begin.

Owns states and their transitions, found as texts get to them. Knows no syntax and no tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from espalier.constrain.position_automaton import ACCEPT, Kinds, PositionAutomaton, Positions

MAX_KEPT = 60_000  # positions and sets of the states that are remembered, about 100 bytes each

# Places where a match may have begun, the earliest first, each with the positions that only a
# match from there or later can be at. Where they are is each search's own.
_Groups = tuple[Positions, ...]


@dataclass(slots=True)
class _Transition:
    """`origins` says of each new group which old one it was; the group after the old is new."""

    state: _State
    origins: tuple[int, ...]
    matched: int  # the old group that a match is complete of, the earliest; -1 for none


@dataclass(slots=True)
class _State:
    groups: _Groups
    row: dict[Kinds, _Transition] = field(default_factory=dict)


class SearchAutomaton:
    """States of all searches for one pattern (as of a tagged automaton: Laurikari, SPIRE 2000).

    Shared by searches in any threads; when it has become large it starts anew.
    """

    def __init__(self, positions: PositionAutomaton) -> None:
        self._positions = positions
        self.start = _State(())
        self._states: dict[_Groups, _State] = {(): self.start}
        self.num_kept = 0

    def kinds_of(self, character: str) -> Kinds:
        """See PositionAutomaton."""
        return self._positions.kinds_of(character)

    def transition(self, state: _State, kinds: Kinds) -> _Transition:
        """From a state by a character of some kinds; remembered."""
        matched, groups, origins = -1, [], []
        known = {ACCEPT}
        for index, positions in enumerate((*state.groups, self._positions.start)):
            reached = self._positions.step(positions, kinds)
            if matched < 0 and ACCEPT in reached:
                matched = index
            new = reached - known
            if new:
                groups.append(new)
                origins.append(index)
                known |= new
        following = _Transition(self._state(tuple(groups)), tuple(origins), matched)
        self._count(len(state.groups) + 1)
        state.row[kinds] = following
        return following

    def _state(self, groups: _Groups) -> _State:
        state = self._states.get(groups)
        if state is None:
            self._count(sum(2 + len(positions) for positions in groups))
            state = self._states.setdefault(groups, _State(groups))
        return state

    def _count(self, num_kept: int) -> None:
        self.num_kept += num_kept
        if self.num_kept > MAX_KEPT:
            self.start.row.clear()
            self._states = {(): self.start}
            self.num_kept = 0


class RegexSearch:
    """One search, in one text."""

    __slots__ = ("_automaton", "_num_characters", "_starts", "_state")

    def __init__(self, automaton: SearchAutomaton) -> None:
        self._automaton = automaton
        self._state = automaton.start
        self._starts: list[int] = []  # of the state's groups
        self._num_characters = 0

    @property
    def num_held(self) -> int:
        """Characters at the end of the text that begin a match."""
        return self._num_characters - self._starts[0] if self._starts else 0

    def step(self, character: str) -> int:
        """Takes a character; length of the longest match that ends with it, 0 for none."""
        automaton, state = self._automaton, self._state
        kinds = automaton.kinds_of(character)
        following = state.row.get(kinds)
        if following is None:
            following = automaton.transition(state, kinds)
        starts = self._starts
        matched = following.matched
        begin = self._num_characters
        self._num_characters = begin + 1
        if following.origins or starts:
            starts.append(begin)
            if matched >= 0:
                begin = starts[matched]
            self._starts = [starts[index] for index in following.origins]
        self._state = following.state
        return self._num_characters - begin if matched >= 0 else 0

    def restart(self) -> None:
        """Forgets the text so far: no match begins in it."""
        self._state = self._automaton.start
        self._starts = []
