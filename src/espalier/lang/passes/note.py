"""What a pass did, for `explain`."""

from __future__ import annotations

from dataclasses import dataclass

from espalier.lang.graph import Graph


@dataclass(frozen=True, slots=True)
class Note:
    """One change.

    Attributes:
        passed: name of the pass.
        message: what it changed.
        text: text that is computed fewer times for it, or "".
        times: how many times fewer.
    """

    passed: str
    message: str
    text: str = ""
    times: int = 0


@dataclass(frozen=True, slots=True)
class Passed:
    """A graph after a pass, and what the pass did."""

    graph: Graph
    notes: tuple[Note, ...] = ()
