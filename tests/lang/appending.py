from __future__ import annotations

from typing import Any

from espalier.backends.base import Backend
from espalier.lang.function import function
from espalier.lang.state import ProgramState


def run(*parts: Any, backend: Backend, **options: Any) -> ProgramState:
    """Runs a program that appends some parts."""

    @function
    def program(s: ProgramState) -> None:
        for part in parts:
            s += part

    return program.run(backend=backend, **options)
