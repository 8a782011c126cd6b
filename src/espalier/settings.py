"""Every environment variable that Espalier reads, in one place.

Values are read when asked for, so that a test or a program may change them.
"""

from __future__ import annotations

import os
from pathlib import Path

from espalier.errors import UserInputError

DEFAULT_MODEL = "smollm2"
MAX_THREADS = 1024
_MAX_DIGITS = 40  # of a number; Python refuses to read some thousand, and nobody wants to


def cache_dir() -> Path:
    """Folder for downloaded models: `ESPALIER_CACHE`, else the user's cache folder."""
    given = os.environ.get("ESPALIER_CACHE")
    if given:
        return Path(given).expanduser()
    return user_cache_dir() / "espalier"


def user_cache_dir() -> Path:
    """The user's cache folder, where each program has a folder: `XDG_CACHE_HOME`, else ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) if base else Path.home() / ".cache"


def default_model() -> str:
    """Name of the model that is used where none is given: `ESPALIER_MODEL`, else `smollm2`."""
    return os.environ.get("ESPALIER_MODEL") or DEFAULT_MODEL


def num_threads() -> int | None:
    """Threads of the native executor: `ESPALIER_THREADS`, or None to use every core it may.

    Raises UserInputError for what is no number from 1 to 1024.
    """
    given = os.environ.get("ESPALIER_THREADS")
    if not given:
        return None
    shown = given if len(given) <= _MAX_DIGITS else given[:_MAX_DIGITS] + "..."
    is_number = len(given) <= _MAX_DIGITS and given.isascii() and given.isdecimal()
    if not (is_number and 1 <= int(given) <= MAX_THREADS):
        raise UserInputError(
            f"ESPALIER_THREADS is {shown!r}; a whole number from 1 to {MAX_THREADS} is allowed. "
            "Unset it to use every core."
        )
    return int(given)


def forced_isa() -> str | None:
    """Instruction set forced by `ESPALIER_ISA` (checked where native code is chosen), or None."""
    return os.environ.get("ESPALIER_ISA") or None
