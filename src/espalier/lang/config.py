"""Settings of the language for this process: the default backend and how much is printed."""

from __future__ import annotations

from typing import Any, cast

from espalier.backends.base import Backend
from espalier.errors import ProgramError, UserInputError, shown


class GlobalConfig:
    """Process-wide settings. An attribute that is not listed here raises AttributeError.

    Attributes:
        default_backend: backend of programs that are run without one, or None.
        verbosity: 2 prints each program's final text.
    """

    __slots__ = ("default_backend", "verbosity")

    def __init__(self) -> None:
        self.default_backend: Any = None
        self.verbosity = 0


global_config = GlobalConfig()


def set_default_backend(backend: Any) -> None:
    """Sets the backend of programs that are run without one (an Engine, a Runtime, a Backend)."""
    global_config.default_backend = backend


def as_backend(backend: Any) -> Backend:
    """The backend itself, or the one that an Engine or Runtime offers as `endpoint`.

    Raises UserInputError for anything else.
    """
    found = getattr(backend, "endpoint", backend)
    if isinstance(found, type) or not all(
        callable(getattr(found, name, None)) for name in ("generate", "role_template")
    ):
        raise UserInputError(
            f"the backend is {shown(backend)}; an espalier.Engine, a Runtime or a backend of "
            "espalier.backends is allowed."
        )
    return cast(Backend, found)


def chosen_backend(backend: Any) -> Backend:
    """The backend given, else the default one; raises ProgramError where there is neither."""
    chosen = backend if backend is not None else global_config.default_backend
    if chosen is None:
        raise ProgramError(
            "no backend: call espalier.set_default_backend(espalier.Engine()), or give backend= "
            "to run."
        )
    return as_backend(chosen)


def flush_cache(backend: Any = None) -> bool:
    """Empties the prefix cache of a backend; false where there is no backend."""
    chosen = backend if backend is not None else global_config.default_backend
    return False if chosen is None else as_backend(chosen).flush_cache()


def get_server_info(backend: Any = None) -> dict[str, Any] | None:
    """What a backend runs and how it fares; None where there is no backend."""
    chosen = backend if backend is not None else global_config.default_backend
    return None if chosen is None else as_backend(chosen).server_info()
