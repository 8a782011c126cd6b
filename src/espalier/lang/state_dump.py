"""The texts of states in a file, for people to read."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

_RULE = "=" * 80


def dump_state_text(
    filename: str | PathLike[str], states: Sequence[object], mode: str = "w"
) -> None:
    """Writes the text of each state, under a line with its index; `mode` "a" appends.

    A text stands for itself. Raises the GenerationError of a state that failed, and OSError.
    """
    with open(filename, mode, encoding="utf-8") as file:
        for index, state in enumerate(states):
            file.write(f"{f' {index} ':=^80}\n{state!s}\n{_RULE}\n\n")
