"""Espalier: a language and runtime for programs that call language models many times.

Names are loaded when they are first used: importing the package reads no model library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from espalier.backends.scripted import ScriptedBackend as ScriptedBackend
    from espalier.errors import BackendError as BackendError
    from espalier.errors import BatchError as BatchError
    from espalier.errors import CapacityError as CapacityError
    from espalier.errors import EspalierError as EspalierError
    from espalier.errors import GenerationError as GenerationError
    from espalier.errors import ProgramError as ProgramError
    from espalier.errors import TraceError as TraceError
    from espalier.errors import UserInputError as UserInputError
    from espalier.lang.api import assistant as assistant
    from espalier.lang.api import assistant_begin as assistant_begin
    from espalier.lang.api import assistant_end as assistant_end
    from espalier.lang.api import gen as gen
    from espalier.lang.api import gen_int as gen_int
    from espalier.lang.api import gen_string as gen_string
    from espalier.lang.api import image as image
    from espalier.lang.api import select as select
    from espalier.lang.api import separate_reasoning as separate_reasoning
    from espalier.lang.api import system as system
    from espalier.lang.api import system_begin as system_begin
    from espalier.lang.api import system_end as system_end
    from espalier.lang.api import user as user
    from espalier.lang.api import user_begin as user_begin
    from espalier.lang.api import user_end as user_end
    from espalier.lang.api import video as video
    from espalier.lang.choices import greedy_token_selection as greedy_token_selection
    from espalier.lang.choices import token_length_normalized as token_length_normalized
    from espalier.lang.choices import (
        unconditional_likelihood_normalized as unconditional_likelihood_normalized,
    )
    from espalier.lang.config import flush_cache as flush_cache
    from espalier.lang.config import get_server_info as get_server_info
    from espalier.lang.config import global_config as global_config
    from espalier.lang.config import set_default_backend as set_default_backend
    from espalier.lang.function import function as function
    from espalier.lang.recording import record_run as record_run
    from espalier.lang.state import ProgramState as ProgramState
    from espalier.lang.usage import record_usage as record_usage
    from espalier.lang.usage import usage_of as usage_of
    from espalier.runtime import Engine as Engine
    from espalier.runtime import Runtime as Runtime
    from espalier.types import Usage as Usage

__version__ = "0.1.0"

# Module -> public names that it holds.
_NAMES = {
    "espalier.backends.scripted": ("ScriptedBackend",),
    "espalier.errors": (
        "BackendError",
        "BatchError",
        "CapacityError",
        "EspalierError",
        "GenerationError",
        "ProgramError",
        "TraceError",
        "UserInputError",
    ),
    "espalier.lang.api": (
        "assistant",
        "assistant_begin",
        "assistant_end",
        "gen",
        "gen_int",
        "gen_string",
        "image",
        "select",
        "separate_reasoning",
        "system",
        "system_begin",
        "system_end",
        "user",
        "user_begin",
        "user_end",
        "video",
    ),
    "espalier.lang.choices": (
        "greedy_token_selection",
        "token_length_normalized",
        "unconditional_likelihood_normalized",
    ),
    "espalier.lang.config": (
        "flush_cache",
        "get_server_info",
        "global_config",
        "set_default_backend",
    ),
    "espalier.lang.function": ("function",),
    "espalier.lang.state": ("ProgramState",),
    "espalier.lang.recording": ("record_run",),
    "espalier.lang.usage": ("record_usage", "usage_of"),
    "espalier.runtime": ("Engine", "Runtime"),
    "espalier.types": ("Usage",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}
__all__ = ["__version__", *sorted(_MODULE_OF)]  # noqa: PLE0604 - names, each a string


# Names of the reference whose backends are not there yet.
_REMOTE_BACKENDS = ("Anthropic", "LiteLLM", "OpenAI", "RuntimeEndpoint", "VertexAI")


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if name in _REMOTE_BACKENDS:
        from espalier.errors import MissingBackendError

        raise MissingBackendError(
            f"espalier.{name}: backends of remote services are not there yet. Use espalier.Engine, "
            "which runs a model in this process, or a class of your own below "
            "espalier.lang.backend.base_backend.BaseBackend."
        )
    if module is None:
        raise AttributeError(f"module 'espalier' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
