"""The rows of a batch file: JSON Lines in, one object or array of arguments a line.

It checks rows and knows nothing of running them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from espalier.errors import UserInputError

Arguments = Mapping[str, Any] | Sequence[Any]
CheckArguments = Callable[[Arguments], None]  # raises UserInputError or TypeError


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row: its line number from 1, and its arguments or what is wrong with it."""

    number: int
    arguments: Arguments | None
    error: UserInputError | None = None


def read_rows(path: Path, check: CheckArguments) -> list[BatchRow]:
    """Reads every row (`-` is standard input); empty lines are passed over.

    A broken row is returned with its error; a file that cannot be read raises UserInputError.
    """
    rows = []
    for number, line in enumerate(_lines(path), start=1):
        if line.strip():
            rows.append(_parse(number, line, check))
    return rows


def _lines(path: Path) -> list[str]:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise UserInputError(f"--batch {path} cannot be read: {error}.") from error
    try:
        # Split at \n alone: U+2028 and its like may stand inside a JSON string.
        return data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserInputError(f"--batch {path} is not UTF-8: {error}.") from error


def _parse(number: int, line: str, check: CheckArguments) -> BatchRow:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BatchRow(number, None, UserInputError(f"row {number} is not JSON: {error}."))
    if not isinstance(value, (dict, list)):
        return BatchRow(
            number,
            None,
            UserInputError(
                f"row {number} is {line.strip()[:60]}; an object of arguments by name, or an "
                "array of arguments in order, is allowed."
            ),
        )
    try:
        check(value)
    except (TypeError, UserInputError) as error:
        return BatchRow(number, None, UserInputError(f"row {number}: {error}"))
    return BatchRow(number, value)
