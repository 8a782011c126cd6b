"""From what a user calls a model to a path on disk, pulling it if need be."""

from __future__ import annotations

import os
from pathlib import Path

from espalier import settings
from espalier.errors import ModelFileError, ModelNotFoundError
from espalier.loaders.hub import parse_hub_name
from espalier.loaders.pull import pull_entry, pull_from_hub, unknown_name_message
from espalier.loaders.pull_progress import PullProgress, StderrProgress
from espalier.loaders.store import find_pulled
from espalier.models.registry import REGISTRY


def resolve_model(
    name_or_path: str | Path | None = None, *, progress: PullProgress | None = None
) -> Path:
    """The .gguf file or Hugging Face folder that `name_or_path` means.

    In this order: None is the default model (`ESPALIER_MODEL`, else smollm2); an alias; a path
    that exists; `org/name` or `org/name:file.gguf` of the hub. An alias or hub model that is not
    in the store is pulled, with a note on standard error (or to `progress`).
    Raises ModelNotFoundError, ModelFileError or DownloadError.
    """
    if name_or_path is not None and not isinstance(name_or_path, (str, Path)):
        raise ModelNotFoundError(
            f"the model is {name_or_path!r}; a name or a path is allowed, such as "
            f"{', '.join(REGISTRY)} or a .gguf file."
        )
    progress = progress if progress is not None else StderrProgress()
    if isinstance(name_or_path, Path):
        return _local_model(name_or_path)
    name = name_or_path if name_or_path is not None else settings.default_model()
    try:
        return _resolve_name(name, progress)
    finally:
        progress.end()


def _resolve_name(name: str, progress: PullProgress) -> Path:
    entry = REGISTRY.get(name)
    if entry is not None:
        found = find_pulled(name)
        if found is not None and found.num_bytes == entry.num_bytes:
            return found.path
        return pull_entry(entry, progress)
    if not name:
        raise ModelNotFoundError(unknown_name_message(name))
    path = Path(os.path.expanduser(name))
    hub_name = parse_hub_name(name)
    if os.path.exists(path) or hub_name is None:
        return _local_model(path, name)
    found = find_pulled(name)
    return found.path if found is not None else pull_from_hub(hub_name, progress)


def _local_model(path: Path, name: str | None = None) -> Path:
    if not os.path.exists(path):
        if name is not None and "/" not in name and not name.endswith(".gguf"):
            raise ModelNotFoundError(unknown_name_message(name))
        raise ModelNotFoundError(
            f"there is no file or folder {path}. Give the path of a .gguf file or of a Hugging "
            f"Face folder, or an alias ({', '.join(REGISTRY)})."
        )
    if path.is_dir():
        return _model_in_folder(path)
    if path.suffix == ".safetensors":
        raise ModelFileError(
            f"{path} holds weights alone; give the folder that it lies in, which has the "
            "config.json and the tokenizer.json too."
        )
    if not path.is_file() or path.stat().st_size == 0:
        raise ModelFileError(f"{path} is empty or not a file; a .gguf file is expected.")
    return path


def _model_in_folder(folder: Path) -> Path:
    if (folder / "config.json").is_file():
        return folder
    found = sorted(folder.glob("*.gguf"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise ModelFileError(f"{folder} holds several models ({names}); give the path of one.")
    raise ModelFileError(
        f"{folder} holds neither a config.json (of a Hugging Face model) nor a .gguf file."
    )
