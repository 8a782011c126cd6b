"""How a command ends when it fails: one line on standard error and an exit status.

1: Espalier refused or failed. 2: wrong usage (the option parser). 130: interrupted by ^C.
"""

from __future__ import annotations

import errno
import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from espalier.errors import EspalierError, UserInputError

P = ParamSpec("P")
R = TypeVar("R")

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130


class UsageError(UserInputError):
    """Options that contradict each other, or that would have no effect."""


def print_error(text: str) -> None:
    """Prints one error on standard error."""
    print(f"espalier: {text}", file=sys.stderr, flush=True)


def ends_with_status(command: Callable[P, R]) -> Callable[P, R]:
    """Turns what a command raises into a line on standard error and the exit status."""

    @functools.wraps(command)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except UsageError as error:
            print_error(f"{error} See --help.")
            raise typer.Exit(WRONG_USAGE) from None
        except EspalierError as error:
            print_error(str(error))
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            print_error("interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader of our output went away (`espalier ... | head`); there is nobody to tell.
            _close_stdout_quietly()
            raise typer.Exit(FAILED) from None
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            _close_stdout_quietly()
            print_error(f"{error.strerror}; what was not written is lost.")
            raise typer.Exit(FAILED) from None

    return wrapper


def _close_stdout_quietly() -> None:
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
