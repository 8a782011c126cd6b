"""What is kept of runs while they are recorded: programs, states, calls, pieces of text, variables.

Times are readings of `time.perf_counter`, in seconds; offsets and lengths are characters. Lists
only grow, so that a run can be drawn while it goes on. It must not know how a run is carried out,
nor how it is drawn.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from espalier.types import Usage

# Where a piece of a state's text comes from.
PROGRAM, TEMPLATE, GENERATED, CHOICE = "program", "template", "generated", "choice"
SHARED_PREFIX = "shared prefix"  # the kind of a call that a program did not write
# How a call stands.
WAITING, RUNNING, DONE, FAILED, CANCELLED = "waiting", "running", "done", "failed", "cancelled"

MAX_VALUE_CHARACTERS = 2_000


@dataclass(slots=True)
class Budget:
    """How much a recording may still take; what does not fit is left out and `is_cut` set."""

    characters: int = 2_000_000
    calls: int = 10_000
    states: int = 5_000
    variables: int = 10_000
    is_cut: bool = False

    def take(self, what: str, count: int = 1) -> bool:
        """Takes `count` of something, all or none."""
        left: int = getattr(self, what)
        if left < count:
            self.is_cut = True
            return False
        setattr(self, what, left - count)
        return True


@dataclass(slots=True, eq=False)
class CallRecord:
    """One call of the model.

    Attributes:
        kind: "gen", "select" or "shared prefix" (a prompt computed once for several forks).
        location: `file:line` where it was written.
        sent_at: when it was handed to the backend, after the calls before it.
        prompt_length: characters of its prompt; it covers the state's text up to there.
        cached_length: leading characters of the prompt that were in the cache; None where the
            backend tells only a count of tokens. Then `cached_share` of the prompt was.
        forced: (start, end) in the first text that a constraint decided; None where the backend
            tells only a count.
        texts: one for each sample.
        scores: (choice, mean log-probability) of a selection.
    """

    kind: str
    variable: str | None
    location: str | None
    submitted_at: float
    num_samples: int = 1
    status: str = WAITING
    sent_at: float | None = None
    first_token_at: float | None = None
    ended_at: float | None = None
    prompt_length: int = 0
    cached_length: int | None = None
    cached_share: float | None = None
    forced: Sequence[tuple[int, int]] | None = None
    texts: Sequence[str] = ()
    scores: Sequence[tuple[str, float]] = ()
    finish: str | None = None
    usage: Usage | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a state's own text, and the call that wrote it."""

    source: str
    text: str
    call: CallRecord | None = None


@dataclass(frozen=True, slots=True)
class VariableRecord:
    """A variable that no call set: by hand, a var_scope, or gathered from forks by join."""

    name: str
    how: str
    value: str
    at: float


@dataclass(slots=True, eq=False)
class StateRecord:
    """One state: the run's own, or a fork.

    Attributes:
        inherited_pieces: how many of the parent's own pieces it began with.
        is_cut: later pieces are missing.
    """

    name: str
    parent: StateRecord | None
    created_at: float
    depth: int = 0
    inherited_pieces: int = 0
    pieces: list[Piece] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)
    variables: list[VariableRecord] = field(default_factory=list)
    joined_at: float | None = None
    is_cut: bool = False

    def inherited(self) -> list[tuple[StateRecord, int]]:
        """The states that its text begins with, the root first, and how many of their pieces."""
        found: list[tuple[StateRecord, int]] = []
        state = self
        while state.parent is not None:
            found.append((state.parent, state.inherited_pieces))
            state = state.parent
        return found[::-1]


@dataclass(slots=True, eq=False)
class RunRecord:
    """One run of a program.

    Attributes:
        title: the program's name with its arguments.
        parent: the run whose body ran this one, where that is recorded too.
        states: the run's own first, each fork after its parent.
        error: what the body raised.
    """

    title: str
    model: str
    started_at: float
    budget: Budget
    parent: RunRecord | None = None
    states: list[StateRecord] = field(default_factory=list)
    ended_at: float | None = None
    error: str | None = None


@dataclass(slots=True, eq=False)
class Recording:
    """The runs recorded together, at most `max_runs`; the others are counted in `num_left_out`."""

    max_runs: int = 100
    budget: Budget = field(default_factory=Budget)
    runs: list[RunRecord] = field(default_factory=list)
    num_left_out: int = 0
    began_at: float = field(default_factory=time.time)  # seconds since 1970

    def take(self, run: RunRecord) -> bool:
        """Takes a run, unless there are too many."""
        if len(self.runs) >= self.max_runs:
            self.num_left_out += 1
            return False
        self.runs.append(run)
        return True
