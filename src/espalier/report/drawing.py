"""What one page draws: runs in order, their states as lanes, their calls with numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from espalier.report.coverage import Coverage
from espalier.report.record import SHARED_PREFIX, CallRecord, RunRecord, StateRecord
from espalier.report.snapshot import as_now
from espalier.types import Usage

MAX_LANES = 400


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the timeline: a state of a run. `depth` counts runs and forks around it."""

    run: RunRecord
    state: StateRecord
    depth: int
    is_root: bool


@dataclass(slots=True)
class Drawing:
    """Copies of runs, and what is drawn of them; `begin` and `end` are times of their clock."""

    runs: Sequence[RunRecord]
    lanes: list[Lane] = field(default_factory=list)
    num_hidden_lanes: int = 0
    numbers: dict[CallRecord, int] = field(default_factory=dict)
    coverage: dict[RunRecord, Coverage] = field(default_factory=dict)
    begin: float = 0.0
    end: float = 0.0
    usage: Usage = field(default_factory=Usage)

    @classmethod
    def of(cls, runs: Sequence[RunRecord]) -> Drawing:
        """The drawing of these runs as they are now, each nested one after its caller."""
        drawing = cls(_in_order(as_now(runs)))
        for run in drawing.runs:
            drawing._add(run)
        times = [time for run in drawing.runs for time in _times(run)]
        if times:
            drawing.begin, drawing.end = min(times), max(times)
        return drawing

    def _add(self, run: RunRecord) -> None:
        self.coverage[run] = Coverage(run)
        depth = _run_depth(run, self.runs)
        for state in _depth_first(run.states):
            for call in state.calls:
                self.numbers[call] = len(self.numbers) + 1
                if call.usage is not None and call.kind != SHARED_PREFIX:
                    self.usage.add(call.usage)
            if len(self.lanes) < MAX_LANES:
                is_root = state.parent is None
                self.lanes.append(Lane(run, state, depth + state.depth, is_root))
            else:
                self.num_hidden_lanes += 1

    @property
    def calls(self) -> list[CallRecord]:
        """The calls that programs made, in the order of their numbers."""
        return [call for call in self.numbers if call.kind != SHARED_PREFIX]


def _in_order(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Each run before those that its body ran."""
    known = set(runs)
    inside: dict[RunRecord | None, list[RunRecord]] = {}
    for run in runs:
        inside.setdefault(run.parent if run.parent in known else None, []).append(run)
    found: list[RunRecord] = []
    stack = inside.get(None, [])[::-1]
    while stack:
        run = stack.pop()
        found.append(run)
        stack += inside.get(run, [])[::-1]
    return found


def _run_depth(run: RunRecord, runs: Sequence[RunRecord]) -> int:
    depth, parent = 0, run.parent
    while parent is not None and parent in runs:
        depth, parent = depth + 1, parent.parent
    return depth


def _depth_first(states: Sequence[StateRecord]) -> list[StateRecord]:
    children: dict[StateRecord | None, list[StateRecord]] = {}
    for state in list(states):
        children.setdefault(state.parent, []).append(state)
    found: list[StateRecord] = []
    stack = children.get(None, [])[::-1]
    while stack:
        state = stack.pop()
        found.append(state)
        stack += children.get(state, [])[::-1]
    return found


def _times(run: RunRecord) -> list[float]:
    found = [run.started_at]
    if run.ended_at is not None:
        found.append(run.ended_at)
    for state in list(run.states):
        found.append(state.created_at)
        if state.joined_at is not None:
            found.append(state.joined_at)
        for call in list(state.calls):
            found += [time for time in (call.submitted_at, call.sent_at) if time is not None]
            if call.ended_at is not None:
                found.append(call.ended_at)
    return found
