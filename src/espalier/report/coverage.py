"""Where each character of a recorded text comes from.

A character of the program's own text was cached or computed as the first call found it whose prompt
it was in, and is a constant where no call's prompt held it. Text that a model wrote is forced where
a constraint decided it and else generated, whatever later calls found of it in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from espalier.report.record import (
    CHOICE,
    GENERATED,
    CallRecord,
    Piece,
    RunRecord,
    StateRecord,
)

CONSTANT, CACHED, COMPUTED, FORCED = "constant", "cached", "computed", "forced"
ORIGINS = (CONSTANT, CACHED, COMPUTED, FORCED, GENERATED)


@dataclass(frozen=True, slots=True)
class Span:
    """Characters start to end of one piece, all of one origin."""

    origin: str
    text: str


@dataclass(slots=True)
class _Covered:
    """What calls have found of one state's own text; offsets count from the start of all text."""

    start: int  # where its own text begins
    num_characters: int  # of its own text
    parent: StateRecord | None
    end: int = 0  # everything before it has been in a prompt
    ranges: list[tuple[int, int, str]] = field(default_factory=list)


class Coverage:
    """The origins of one run's texts."""

    def __init__(self, run: RunRecord) -> None:
        self.is_approximate = False
        self._states: dict[StateRecord, _Covered] = {}
        calls: list[tuple[float, StateRecord, CallRecord]] = []
        for state in run.states:
            start = sum(_length(of.pieces[:count]) for of, count in state.inherited())
            length = _length(state.pieces)
            self._states[state] = _Covered(start, length, state.parent, start)
            calls += [
                (call.sent_at, state, call)
                for call in state.calls
                if call.sent_at is not None and call.usage is not None
            ]
        for _, state, call in sorted(calls, key=lambda item: item[0]):
            border = self._border(call)
            if border is not None:
                self._cover(state, border, CACHED)
                self._cover(state, call.prompt_length, COMPUTED)

    def _border(self, call: CallRecord) -> int | None:
        if call.cached_length is not None:
            return min(call.cached_length, call.prompt_length)
        if call.cached_share is None:
            return None
        self.is_approximate = self.is_approximate or 0 < call.cached_share < 1
        return round(call.cached_share * call.prompt_length)

    def _cover(self, state: StateRecord, end: int, origin: str) -> None:
        """All text before `end` has been in a prompt; what was in none before has this origin."""
        at: StateRecord | None = state
        while at is not None:
            covered = self._states.get(at)
            if covered is None:
                return
            own_end = min(end, covered.start + covered.num_characters)
            if own_end > covered.end:
                covered.ranges.append((covered.end, own_end, origin))
                covered.end = own_end
            end = min(end, covered.start)
            at = covered.parent

    def spans(self, state: StateRecord) -> Iterator[tuple[Piece, list[Span]]]:
        """A state's own pieces, each in spans of one origin."""
        covered = self._states[state]
        at, index = covered.start, 0
        for piece in list(state.pieces):
            if piece.source in (GENERATED, CHOICE):
                forced = piece.call.forced if piece.call is not None else None
                ranges: Iterable[tuple[int, int, str]] = (
                    (start, end, FORCED) for start, end in forced or ()
                )
                yield piece, _spans(piece.text, ranges, GENERATED)
            else:
                while index < len(covered.ranges) and covered.ranges[index][1] <= at:
                    index += 1
                ranges = _ranges_within(covered.ranges, index, at, len(piece.text))
                yield piece, _spans(piece.text, ranges, CONSTANT)
            at += len(piece.text)


def _ranges_within(
    ranges: Sequence[tuple[int, int, str]], index: int, at: int, length: int
) -> Iterator[tuple[int, int, str]]:
    """The ranges from `index` on that begin in the `length` characters from `at`, from there."""
    while index < len(ranges) and ranges[index][0] < at + length:
        start, end, origin = ranges[index]
        yield start - at, end - at, origin
        index += 1


def _spans(text: str, ranges: Iterable[tuple[int, int, str]], rest: str) -> list[Span]:
    """The text in spans: inside the ranges, which are in order, with their origin."""
    spans: list[Span] = []
    at = 0
    for range_start, range_end, origin in ranges:
        start, end = max(range_start, at), min(range_end, len(text))
        if start >= end:
            continue
        if start > at:
            spans.append(Span(rest, text[at:start]))
        spans.append(Span(origin, text[start:end]))
        at = end
    if at < len(text) or not text:
        spans.append(Span(rest, text[at:]))
    return spans


def _length(pieces: Iterable[Piece]) -> int:
    return sum(len(piece.text) for piece in pieces)
