"""The options that give an answer a form."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from espalier.cli.options import option
from espalier.errors import UserInputError

_FROM_FILE = ("json_schema", "ebnf", "lark")


@dataclass(frozen=True, slots=True)
class FormChoice:
    """The form that the user asked for; a schema or grammar that begins with @ names a file."""

    regex: str | None = option("The answer matches this regular expression.", metavar="REGEX")
    json_schema: str | None = option(
        "The answer is JSON of this schema (JSON text, or @FILE).", metavar="SCHEMA"
    )
    ebnf: str | None = option(
        "The answer is derived from the rule root of this grammar (text, or @FILE).",
        metavar="GRAMMAR",
    )
    lark: str | None = option(
        "The answer is derived from the rule start of this grammar (text, or @FILE).",
        metavar="GRAMMAR",
    )
    whitespace: str | None = option(
        "Space in JSON of a schema: compact, spaced or pretty.", metavar="STYLE"
    )

    def given(self) -> dict[str, str]:
        """The values that were chosen, by the names that `gen` takes. Raises UserInputError."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return {name: _read(name, value) for name, value in given.items()}


def _read(name: str, value: str) -> str:
    if name not in _FROM_FILE or not value.startswith("@"):
        return value
    path = Path(value[1:])
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserInputError(
            f"--{name.replace('_', '-')} names the file {path}, which cannot be read: {error}."
        ) from error
