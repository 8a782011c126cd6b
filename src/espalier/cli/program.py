"""Programs in a user's file: finding one, running it once, and its result as JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from espalier.cli.script import as_main_module, execute
from espalier.errors import UserInputError

if TYPE_CHECKING:
    from espalier.lang.function import SglFunction
    from espalier.lang.state import ProgramState

# JSON allows them inside a string; many readers of JSON Lines would end the line there.
_LINE_BREAKS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
MODULE_NAME = "espalier_program"  # not "__main__": the file's own main block must not run


def load_program(file: Path, name: str) -> SglFunction:
    """Runs the file as a module and returns the program `name` in it.

    Raises UserInputError where there is none, and whatever the file itself raises.
    """
    from espalier.lang.function import SglFunction

    module = as_main_module(file, MODULE_NAME)
    execute(file, module)
    found = getattr(module, name, None)
    if isinstance(found, SglFunction):
        return found
    programs = _programs_of(module)
    if found is None:
        raise UserInputError(f"{file} defines no {name!r}; its programs are {programs}.")
    raise UserInputError(
        f"{name!r} in {file} is no program but {type(found).__name__}; decorate it with "
        f"@espalier.function. Programs of the file are {programs}."
    )


def _programs_of(module: ModuleType) -> str:
    from espalier.lang.function import SglFunction

    names = [name for name, value in vars(module).items() if isinstance(value, SglFunction)]
    return ", ".join(sorted(names)) or "none"


def parse_input(text: str) -> Mapping[str, Any] | Sequence[Any]:
    """The arguments that `--input` gives; raises UserInputError."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UserInputError(f"--input {text!r} is not JSON: {error}.") from None
    if not isinstance(value, (dict, list)):
        raise UserInputError(
            f"--input is {text!r}; a JSON object of arguments by name, or an array of arguments "
            "in order, is allowed."
        )
    return value


def check_arguments(program: SglFunction, arguments: Mapping[str, Any] | Sequence[Any]) -> None:
    """Raises UserInputError where the program does not take these arguments."""
    by_name = dict(arguments) if isinstance(arguments, Mapping) else {}
    in_order = () if isinstance(arguments, Mapping) else tuple(arguments)
    try:
        program.signature.bind(None, *in_order, **by_name)
    except TypeError as error:
        raise UserInputError(
            f"{program.func.__name__}{program.signature} does not take these arguments: {error}."
        ) from None


def check_sampling(program: SglFunction, sampling: Mapping[str, Any]) -> None:
    """Raises UserInputError where a sampling option is also a parameter of the program."""
    clashing = [name for name in sampling if name in program.signature.parameters]
    if clashing:
        raise UserInputError(
            f"{program.func.__name__} has a parameter {clashing[0]!r} of its own; give it in the "
            f"input instead of --{clashing[0].replace('_', '-')}."
        )


def run_once(
    program: SglFunction, arguments: Mapping[str, Any] | Sequence[Any], sampling: Mapping[str, Any]
) -> ProgramState:
    """Runs the program to its end; raises what it raises."""
    if isinstance(arguments, Mapping):
        state = program.run(**arguments, **sampling)
    else:
        state = program.run(*arguments, **sampling)
    state.sync()
    return state


def variables_of(state: ProgramState) -> dict[str, Any]:
    """The variables of a finished state by name, in the order in which they were first set."""
    names = [name for name in state.stream.variables if name is not None]
    return {name: state[name] for name in names}


def result_of(state: ProgramState) -> dict[str, Any]:
    """Everything a finished state has: variables, the program's return value, the text."""
    return {
        "variables": variables_of(state),
        "return_value": state.ret_value,
        "text": state.text(),
    }


def as_json(value: Any, *, indent: int | None = None) -> str:
    """JSON of a result; values that JSON lacks are written as their text."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return text.translate(_LINE_BREAKS)
