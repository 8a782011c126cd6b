"""`espalier models`: pull, list, find, export and remove models."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from espalier import settings
from espalier.cli.failure import UsageError, ends_with_status
from espalier.errors import ModelNotFoundError

if TYPE_CHECKING:
    from espalier.loaders.store import PulledModel

models_app = typer.Typer(
    help="Pull, list, find, export and remove models.", no_args_is_help=True, rich_markup_mode=None
)

NameArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[NAME]",
        help="Alias, or org/name or org/name:file.gguf of the Hugging Face hub.",
        show_default="the default model",
    ),
]


@models_app.command("pull")
@ends_with_status
def pull(name: NameArgument = None) -> None:
    """Download a model and check it; print its path."""
    from espalier.loaders.pull import pull_model

    print(pull_model(name if name is not None else settings.default_model()))


@models_app.command("list")
@ends_with_status
def list_models(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the models that are on this machine."""
    from espalier.loaders.store import list_pulled
    from espalier.models.registry import REGISTRY

    models = list_pulled()
    if as_json:
        print(_as_json(models))
        return
    if models:
        print(_as_table(models))
    here = {model.name for model in models}
    absent = [entry for entry in REGISTRY.values() if entry.alias not in here]
    for entry in absent:
        print(
            f"Not pulled: {entry.alias} ({entry.title}, {entry.download_bytes / 1e6:.0f} MB, "
            f"licence {entry.licence}).",
            file=sys.stderr,
        )


@models_app.command("path")
@ends_with_status
def path(name: NameArgument = None) -> None:
    """Print the path of a model that is on this machine."""
    from espalier.loaders.store import find_pulled

    wanted = name if name is not None else settings.default_model()
    found = find_pulled(wanted)
    if found is None:
        raise ModelNotFoundError(
            f"{wanted} is not on this machine, or is broken: run `espalier models pull {wanted}`."
        )
    print(found.path)


@models_app.command("export")
@ends_with_status
def export(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Alias, hub name or path of a GGUF model.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    to: Annotated[str, typer.Option("--format", help="Format to write: hf.")] = "hf",
    dtype: Annotated[
        str, typer.Option("--dtype", help="Type of the weights: bfloat16 or float32.")
    ] = "bfloat16",
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace the folder, if it holds only exported files."),
    ] = False,
) -> None:
    """Write a GGUF model as a Hugging Face folder; print its path."""
    from espalier.loaders.hf_export import FORMATS, export_hf_folder
    from espalier.loaders.resolve import resolve_model

    if to not in FORMATS:
        raise UsageError(f"--format is {to!r}; allowed is {', '.join(FORMATS)}.")
    print(export_hf_folder(resolve_model(name), output, dtype=dtype, overwrites=overwrite))


@models_app.command("rm")
@ends_with_status
def remove(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names, or paths in the cache.")
    ],
) -> None:
    """Remove models from this machine."""
    from espalier.loaders.pull_progress import StderrProgress
    from espalier.loaders.store import remove_pulled

    for name in names:
        removed = remove_pulled(name, StderrProgress())
        print(f"Removed {removed.name} ({removed.num_bytes / 1e6:.1f} MB).")


_HEADER = ("NAME", "KIND", "SIZE", "PULLED", "LICENCE", "PATH")


def _as_table(models: list[PulledModel]) -> str:
    rows = [_HEADER, *map(_row, models)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _row(model: PulledModel) -> tuple[str, ...]:
    kind = model.kind if model.problem is None else f"broken: {model.problem}"
    size = f"{model.num_bytes / 1e6:.1f} MB"
    return (model.name, kind, size, model.pulled_at[:10], model.licence, str(model.path))


def _as_json(models: list[PulledModel]) -> str:
    import json
    from dataclasses import asdict

    return json.dumps([{**asdict(model), "path": str(model.path)} for model in models], indent=2)
