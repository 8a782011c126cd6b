"""Recording runs: what happens to programs, states and calls, kept to be drawn.

A program that is recorded has a `RunRecorder`, each of its streams a `StateRecorder` and each of
its calls a `CallRecorder`; in all others these are None and nothing is done. It must not know
streams or operations, nor how a run is drawn.
"""

from __future__ import annotations

import reprlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from espalier.backends.base import Backend, Sample, TellsOffsets, finish_type
from espalier.errors import UserInputError
from espalier.lang.location import SourceLine
from espalier.report.record import (
    CANCELLED,
    CHOICE,
    DONE,
    FAILED,
    GENERATED,
    MAX_VALUE_CHARACTERS,
    RUNNING,
    Budget,
    CallRecord,
    Piece,
    Recording,
    RunRecord,
    StateRecord,
    VariableRecord,
)
from espalier.report.view import RunView
from espalier.types import Prompt, Usage, whole_number

_MAX_TITLE = 300
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


class CallRecorder:
    """Notes what becomes of one call."""

    __slots__ = ("_prompt", "_state", "record")

    def __init__(self, record: CallRecord, state: StateRecorder) -> None:
        self.record = record
        self._state = state
        self._prompt: Prompt = ()

    def started(self, prompt: Prompt) -> None:
        """The turn of the call has come; it may still wait for a prefix or for the backend."""
        if self.record.sent_at is not None:  # not the first of several calls in a row
            return
        self._prompt = prompt
        self.record.status = RUNNING
        self.record.prompt_length = sum(len(segment.text) for segment in prompt)

    def sent(self) -> None:
        """The call goes to the backend; of several calls in a row, the first counts."""
        if self.record.sent_at is None:
            self.record.sent_at = time.perf_counter()

    def answered(self, usage: Usage, backend: Backend) -> None:
        """The backend has answered; `usage` is as it came.

        Of several calls in a row the last ends the record; the first says what was cached, as
        the others find what it has computed.
        """
        record = self.record
        is_first = record.ended_at is None
        record.ended_at = time.perf_counter()
        if not is_first:
            return
        if usage.ttft_s is not None and record.sent_at is not None:
            record.first_token_at = min(record.sent_at + usage.ttft_s, record.ended_at)
        if usage.prompt_tokens:
            record.cached_share = usage.cached_tokens / usage.prompt_tokens
        if isinstance(backend, TellsOffsets):
            record.cached_length = backend.prompt_offset(self._prompt, usage.cached_tokens)
        self._prompt = ()

    def generated(self, samples: Sequence[Sample], usage: Usage, backend: Backend) -> None:
        """The samples of a generation; the first one is the state's text."""
        first = samples[0]
        if first.forced_spans is not None and first.token_ids and isinstance(backend, TellsOffsets):
            self.record.forced = _in_characters(first, backend.token_offsets(first.token_ids))
        self.record.finish = finish_type(first.meta_info)
        self._done([sample.text for sample in samples], usage, GENERATED)

    def chose(self, choice: str, scores: Sequence[tuple[str, float]], usage: Usage) -> None:
        """What a selection decided for."""
        self.record.scores = scores[:100]
        self._done([choice], usage, CHOICE)

    def prefilled(self, usage: Usage) -> None:
        """A prompt that forks share has been computed."""
        self.record.usage, self.record.status = replace(usage), DONE

    def _done(self, texts: list[str], usage: Usage, source: str) -> None:
        self.record.usage, self.record.status = replace(usage), DONE
        if self._state.budget.take("characters", sum(map(len, texts[1:]))):
            self.record.texts = texts
        else:
            self.record.texts = texts[:1]
        self._state.text(source, texts[0], self.record)

    def failed(self, error: str, *, is_cancelled: bool) -> None:
        """It will have no result; only the first error counts."""
        record = self.record
        if record.status == DONE and record.error is None:  # its text was no value of its form
            record.error = _cut(error)
        elif record.error is None:
            record.status = CANCELLED if is_cancelled else FAILED
            record.error = _cut(error)
        if record.ended_at is None and record.sent_at is not None:
            record.ended_at = time.perf_counter()


class StateRecorder:
    """Notes what becomes of one state."""

    __slots__ = ("_num_groups", "_run", "record")

    def __init__(self, record: StateRecord, run: RunRecorder) -> None:
        self.record = record
        self._run = run
        self._num_groups = 0

    @property
    def budget(self) -> Budget:
        """How much may still be recorded."""
        return self._run.record.budget

    def text(self, source: str, text: str, call: CallRecord | None = None) -> None:
        """Text that was appended."""
        if not text or self.record.is_cut:
            return
        if self.budget.take("characters", len(text)):
            self.record.pieces.append(Piece(source, text, call))
        else:
            self.record.is_cut = True

    def call(
        self, kind: str, variable: str | None, location: SourceLine | None, num_samples: int = 1
    ) -> CallRecorder | None:
        """A call that was submitted; None where there are too many."""
        if not self.budget.take("calls"):
            return None
        place = None if location is None else str(location)
        record = CallRecord(kind, variable, place, time.perf_counter(), num_samples)
        self.record.calls.append(record)
        return CallRecorder(record, self)

    def variable(self, name: str, how: str, value: object) -> None:
        """A variable that no call set."""
        if self.budget.take("variables"):
            text = value if isinstance(value, str) else _short.repr(value)
            record = VariableRecord(name, how, _cut(text), time.perf_counter())
            self.record.variables.append(record)

    def forks(self, size: int) -> list[StateRecorder | None]:
        """`size` forks that were made here; None for those that are too many."""
        self._num_groups += 1
        prefix = "" if self.record.parent is None else f"{self.record.name}."
        group = f"{self._num_groups}" if self._num_groups > 1 else ""
        return [
            self._run.state(f"{prefix}{index}" + (f" ({group})" if group else ""), self.record)
            for index in range(size)
        ]

    def began_with(self, num_pieces: int) -> None:
        """The fork goes on after this many pieces of its parent."""
        self.record.inherited_pieces = num_pieces

    def took_over(self, fork: StateRecorder | None) -> None:
        """The text that a fork added is this state's too."""
        if fork is None:
            self.record.is_cut = self.budget.is_cut = True
            return
        for piece in fork.record.pieces:
            self.text(piece.source, piece.text, piece.call)

    def joined(self) -> None:
        """It has been brought into its parent."""
        self.record.joined_at = time.perf_counter()


class RunRecorder:
    """Notes what becomes of one run."""

    __slots__ = ("record", "recordings", "root")

    def __init__(self, record: RunRecord, recordings: tuple[Recording, ...]) -> None:
        self.record = record
        self.recordings = recordings
        self.root = self.state("main", None)

    def state(self, name: str, parent: StateRecord | None) -> StateRecorder | None:
        """A state of the run; None where there are too many."""
        if not self.record.budget.take("states"):
            return None
        depth = 0 if parent is None else parent.depth + 1
        state = StateRecord(name, parent, time.perf_counter(), depth)
        self.record.states.append(state)
        return StateRecorder(state, self)

    def ended(self) -> None:
        """The body has returned."""
        self.record.ended_at = time.perf_counter()

    def failed(self, error: BaseException) -> None:
        """The body raised, or was interrupted."""
        self.record.error = _cut(f"{type(error).__name__}: {error}".rstrip(": "))

    def view(self) -> RunView:
        """A drawing of this run, with the runs inside it."""
        return RunView(self.recordings[-1], of=self.record)


def start_run(
    name: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    model: str,
    *,
    outer: RunRecorder | None,
    is_wanted: bool,
) -> RunRecorder | None:
    """A recorder of a run that is about to start; None where nothing records it.

    A run is recorded where a recording is on, where the run that it is part of is recorded, or
    where it `is_wanted`.
    """
    recordings = _recordings if outer is None else (*_recordings, *outer.recordings)
    if not recordings and not is_wanted:
        return None
    record = RunRecord(
        _title(name, args, kwargs),
        model,
        time.perf_counter(),
        Budget(),
        None if outer is None else outer.record,
    )
    takers = tuple(recording for recording in dict.fromkeys(recordings) if recording.take(record))
    if not takers and is_wanted:  # no recording is on, or those that are have no place left
        takers = (Recording(runs=[record]),)
    if not takers:
        return None
    record.budget = takers[0].budget
    return RunRecorder(record, takers)


_lock = threading.Lock()
_recordings: tuple[Recording, ...] = ()


@contextmanager
def record_run(max_runs: int = 100) -> Iterator[RunView]:
    """Records every program that starts in the process, in any thread, while the block runs.

    Gives a drawing of what was recorded: in a notebook it shows itself, `save(path)` writes the
    page. At most `max_runs` runs are kept, and so much text and so many calls as
    `espalier.report.record.Budget` allows; the drawing says what was left out. Raises
    UserInputError for a `max_runs` that is no whole number from 1.
    """
    global _recordings  # noqa: PLW0603
    if whole_number("max_runs", max_runs, UserInputError) < 1:
        raise UserInputError(f"max_runs is {max_runs}; 1 run or more is allowed.")
    recording = Recording(max_runs)
    with _lock:
        _recordings = (*_recordings, recording)
    try:
        yield RunView(recording)
    finally:
        with _lock:
            _recordings = tuple(other for other in _recordings if other is not recording)


def _in_characters(sample: Sample, offsets: Sequence[int]) -> list[tuple[int, int]]:
    """The spans of forced tokens as spans of text; `offsets[i]` is where token i begins."""
    spans = []
    for first, end in sample.forced_spans or ():
        start, stop = (offsets[min(index, len(offsets) - 1)] for index in (first, end))
        if start < stop:
            spans.append((start, stop))
    return spans


def _title(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    given = [_short.repr(value) for value in args]
    given += [f"{key}={_short.repr(value)}" for key, value in kwargs.items()]
    return _cut(f"{name}({', '.join(given)})", _MAX_TITLE)


def _cut(text: str, length: int = MAX_VALUE_CHARACTERS) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
