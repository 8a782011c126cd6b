"""Settings of the language for this process: the default backend and how much is printed."""

from __future__ import annotations

from typing import Any, cast

from espalier.backends.base import Backend
from espalier.errors import ProgramError, UnsupportedError, UserInputError, shown
from espalier.types import flag, whole_number


class GlobalConfig:
    """Process-wide settings. An attribute that is not listed here raises AttributeError.

    A value that cannot be honoured raises UserInputError or UnsupportedError when it is set.

    Attributes:
        default_backend: backend of programs that are run without one, or None.
        verbosity: 2 prints each program's final text.
        skip_special_tokens_in_output: False shows control tokens in generated text.
        spaces_between_special_tokens_in_out: True; nothing is added between tokens here.
        enable_precache_with_tracing: True has the common prefix of a compiled program's batch
            computed first; other batches share it in the engine as it comes.
        enable_parallel_encoding: True allows backends to put caches of joined forks together; none
            here does, and the text is the same.
    """

    __slots__ = (
        "_enable_parallel_encoding",
        "_enable_precache_with_tracing",
        "_skip_special_tokens_in_output",
        "_verbosity",
        "default_backend",
    )

    def __init__(self) -> None:
        self.default_backend: Any = None
        self._verbosity = 0
        self._skip_special_tokens_in_output = True
        self._enable_precache_with_tracing = True
        self._enable_parallel_encoding = True

    @property
    def verbosity(self) -> int:
        """2 prints each program's final text."""
        return self._verbosity

    @verbosity.setter
    def verbosity(self, value: int) -> None:
        self._verbosity = whole_number("verbosity", value, UserInputError)

    @property
    def skip_special_tokens_in_output(self) -> bool:
        """False shows control tokens in generated text."""
        return self._skip_special_tokens_in_output

    @skip_special_tokens_in_output.setter
    def skip_special_tokens_in_output(self, value: bool) -> None:
        name = "skip_special_tokens_in_output"
        self._skip_special_tokens_in_output = flag(name, value, UserInputError)

    @property
    def spaces_between_special_tokens_in_out(self) -> bool:
        """True; what False means in the reference has no effect on text here."""
        return True

    @spaces_between_special_tokens_in_out.setter
    def spaces_between_special_tokens_in_out(self, value: bool) -> None:
        if not flag("spaces_between_special_tokens_in_out", value, UserInputError):
            raise UnsupportedError(
                "spaces_between_special_tokens_in_out is False; tokens are decoded as they are, "
                "without added spaces, so True is allowed and nothing else."
            )

    @property
    def enable_precache_with_tracing(self) -> bool:
        """True has the common prefix of a compiled program's batch computed first."""
        return self._enable_precache_with_tracing

    @enable_precache_with_tracing.setter
    def enable_precache_with_tracing(self, value: bool) -> None:
        name = "enable_precache_with_tracing"
        self._enable_precache_with_tracing = flag(name, value, UserInputError)

    @property
    def enable_parallel_encoding(self) -> bool:
        """True allows backends to put caches of joined forks together."""
        return self._enable_parallel_encoding

    @enable_parallel_encoding.setter
    def enable_parallel_encoding(self, value: bool) -> None:
        self._enable_parallel_encoding = flag("enable_parallel_encoding", value, UserInputError)


global_config = GlobalConfig()


def set_default_backend(backend: Any) -> None:
    """Sets the backend of programs that are run without one (an Engine, a Runtime, a Backend)."""
    global_config.default_backend = backend


def as_backend(backend: Any) -> Backend:
    """The backend itself, or the one that an Engine or Runtime offers as `endpoint`.

    Raises UserInputError for anything else.
    """
    found = getattr(backend, "endpoint", backend)
    if hasattr(found, "get_chat_template"):  # in the reference's form
        from espalier.lang.backend.base_backend import BaseBackend
        from espalier.lang.backend.reference_backend import as_reference_backend

        if isinstance(found, BaseBackend):
            return as_reference_backend(found)
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
