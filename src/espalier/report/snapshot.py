"""Records of runs as they are at one moment, while the runs themselves may go on.

It must not know how they are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from espalier.report.record import CallRecord, Piece, RunRecord, StateRecord


def as_now(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Copies of the runs with their states, pieces and calls, which refer to one another.

    A call that a copied piece came from is among the copied calls of its state: pieces are read
    before calls, and a call is there before its text.
    """
    copies = {run: replace(run, states=list(run.states)) for run in runs}
    states: dict[StateRecord, StateRecord] = {}
    for copy in copies.values():
        for state in copy.states:
            states[state] = replace(
                state, pieces=list(state.pieces), variables=list(state.variables)
            )
    calls: dict[CallRecord, CallRecord] = {}
    for state, copied in states.items():
        copied.calls = [calls.setdefault(call, replace(call)) for call in list(state.calls)]
        if copied.parent is not None:
            copied.parent = states[copied.parent]
    for copied in states.values():
        copied.pieces = [_with_copied_call(piece, calls) for piece in copied.pieces]
    for copy in copies.values():
        copy.states = [states[state] for state in copy.states]
        copy.parent = None if copy.parent is None else copies.get(copy.parent, copy.parent)
    return list(copies.values())


def _with_copied_call(piece: Piece, calls: dict[CallRecord, CallRecord]) -> Piece:
    call = piece.call
    return piece if call is None else Piece(piece.source, piece.text, calls.get(call, call))
