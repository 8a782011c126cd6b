"""Files with one JSON value a line. Knows nothing of programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from os import PathLike
from typing import Any

from espalier.errors import UserInputError, shown


def read_jsonl(filename: str | PathLike[str]) -> Iterator[Any]:
    """The values of a file, line by line; empty lines and lines that begin with # are none.

    Raises UserInputError, with the line's number, for a line that is no JSON, and OSError.
    """
    with open(filename, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserInputError(
                    f"{filename}, line {number}: {shown(line.strip())} is no JSON: {error}."
                ) from error
