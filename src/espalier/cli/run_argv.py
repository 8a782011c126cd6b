"""Which words of `espalier run ...` belong to Espalier, and which to the script.

Everything after FILE.py is the script's; after FILE.py:function there is no script, so options may
stand on both sides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from espalier.cli.failure import UsageError
from espalier.errors import UserInputError

_TARGET = re.compile(r"(?P<file>.+\.pyw?)(?::(?P<function>[^/:]*))?")


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A Python file, and the function in it to run; None means the file is run as a script."""

    file: Path
    function: str | None


def parse_target(text: str) -> RunTarget:
    """The target that `FILE.py` or `FILE.py:function` names; raises UserInputError."""
    match = _TARGET.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} cannot be run; give FILE.py, or FILE.py:function.")
    file, function = Path(match["file"]), match["function"]
    if function is not None and not function.isidentifier():
        raise UsageError(
            f"{function!r} in {text!r} is not the name of a function; give FILE.py:function."
        )
    if not file.is_file():
        raise UserInputError(f"there is no file {file}.")
    return RunTarget(file, function)


def split_run_argv(argv: list[str]) -> list[str]:
    """Puts the words of `run` in an order that an option parser takes: options, target, the rest.

    Words of other commands stay as they are.
    """
    if argv[:1] != ["run"]:
        return argv
    for index, word in enumerate(argv[1:], start=1):
        if word == "--":
            return argv
        match = _TARGET.fullmatch(word)
        if match is None or word.startswith("-"):
            continue
        before, after = argv[:index], argv[index + 1 :]
        if match["function"] is not None:
            return [*before, *after, "--", word]
        return [*before, "--", word, *after]
    return argv


def target_and_arguments(words: list[str]) -> tuple[RunTarget, list[str]]:
    """The target and the words that are left, of those that are no options."""
    if _TARGET.fullmatch(words[0]) is None and _TARGET.fullmatch(words[-1]) is not None:
        return parse_target(words[-1]), words[:-1]
    return parse_target(words[0]), words[1:]
