"""The `espalier` command: its sub-commands, each in a file of its own.

Every import that is not needed to show the help is made inside the command that needs it.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from espalier.cli.chat_command import chat
from espalier.cli.generate_command import generate
from espalier.cli.models_command import models_app
from espalier.cli.plan_command import plan
from espalier.cli.run_argv import split_run_argv
from espalier.cli.run_command import run

app = typer.Typer(
    name="espalier",
    help="Programs that call language models many times, run on this machine.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(models_app, name="models")
app.command("run")(run)
app.command("plan")(plan)
app.command("generate")(generate)
app.command("chat")(chat)


def print_version() -> None:
    """Prints the version of Espalier and of Python."""
    import espalier

    python = ".".join(map(str, sys.version_info[:3]))
    print(f"espalier {espalier.__version__} (Python {python})")


def _version_option(wanted: bool) -> None:
    if wanted:
        print_version()
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=_version_option,
        ),
    ] = False,
) -> None:
    """Programs that call language models many times, run on this machine."""


app.command("version", help="Show the version.")(print_version)


def main(argv: list[str] | None = None) -> None:
    """Entry point of the command; always ends with SystemExit."""
    given = sys.argv[1:] if argv is None else argv
    app(args=split_run_argv(given), prog_name="espalier")
