"""Finds stop strings in text that arrives character by character.

Knows nothing of tokens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(slots=True)
class StopAutomaton:
    """Finds the first complete one of several strings (Aho and Corasick, CACM 1975).

    A state stands for the longest end of the text so far that begins a stop string; 0 is none.
    """

    children: list[dict[str, int]] = field(default_factory=lambda: [{}])
    depths: list[int] = field(default_factory=lambda: [0])  # characters that the state stands for
    stops: list[str | None] = field(default_factory=lambda: [None])  # longest stop that ends here
    fallbacks: list[int] = field(default_factory=lambda: [0])  # next shorter such end

    def step(self, state: int, character: str) -> int:
        """State after one more character."""
        while state and character not in self.children[state]:
            state = self.fallbacks[state]
        return self.children[state].get(character, 0)

    def insert(self, stop: str) -> None:
        """Adds a stop string; `link` must follow."""
        state = 0
        for character in stop:
            following = self.children[state].setdefault(character, len(self.children))
            if following == len(self.children):
                self.children.append({})
                self.depths.append(self.depths[state] + 1)
                self.stops.append(None)
                self.fallbacks.append(0)
            state = following
        self.stops[state] = stop

    def link(self) -> None:
        """Sets fallbacks, breadth first, and the stops that end inside longer prefixes."""
        queue = deque(self.children[0].values())
        while queue:
            state = queue.popleft()
            for character, child in self.children[state].items():
                self.fallbacks[child] = self.step(self.fallbacks[state], character)
                queue.append(child)
            if self.stops[state] is None:
                self.stops[state] = self.stops[self.fallbacks[state]]


@lru_cache(maxsize=64)
def stop_automaton(stops: tuple[str, ...]) -> StopAutomaton:
    """The automaton of some non-empty stop strings, shared by the requests that have them."""
    automaton = StopAutomaton()
    for stop in stops:
        automaton.insert(stop)
    automaton.link()
    return automaton
