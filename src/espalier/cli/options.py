"""Command-line options made from the fields of dataclasses, so that commands can share them.

A field `num_threads` becomes `--num-threads`, or the flag in its metadata; its default is the
option's. It knows no particular option.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import field, fields
from typing import Annotated, Any, get_type_hints

import typer


def option(help_text: str, default: Any = None, **settings: Any) -> Any:
    """A dataclass field that is an option; `flag` renames it, the rest goes to typer.Option."""
    metadata = {"help": help_text, **settings}
    return field(default=default, metadata={"option": metadata})


def with_options(**groups: type) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Replaces parameters that are dataclasses by one option for each of their fields.

    `with_options(engine=EngineChoice)` calls the command with `engine=EngineChoice(...)`.
    """

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = [
            parameter
            for parameter in inspect.signature(command, eval_str=True).parameters.values()
            if parameter.name not in groups
        ]
        made = {name: _parameters_of(group) for name, group in groups.items()}
        every = [*own, *(parameter for group in made.values() for parameter in group)]

        @functools.wraps(command)
        def wrapper(**values: Any) -> Any:
            for name, group in groups.items():
                taken = {parameter.name: values.pop(parameter.name) for parameter in made[name]}
                values[name] = group(**taken)
            return command(**values)

        wrapper.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in every]
        )
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return wrapper

    return decorate


def _parameters_of(group: type) -> list[inspect.Parameter]:
    hints = get_type_hints(group)
    parameters = []
    for entry in fields(group):
        settings = dict(entry.metadata["option"])
        flag = settings.pop("flag", "--" + entry.name.replace("_", "-"))
        made = typer.Option(flag, **settings)
        parameters.append(
            inspect.Parameter(
                entry.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=entry.default,
                annotation=Annotated[hints[entry.name], made],
            )
        )
    return parameters
