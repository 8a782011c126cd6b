"""The folder of pulled models: what is there, adding to it all or nothing, removing from it.

    models/<name>/              the files of one model, and its record
    models/.locks/<name>        held while a model is added or removed
    models/.partial/<name>/...  a pull that has not ended, or was killed
    models/.trash-*             on its way out

A model appears by one rename when it is whole. It knows nothing of where models come from.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote, unquote

from espalier import settings
from espalier.errors import DownloadError, ModelNotFoundError, UserInputError
from espalier.loaders.file_lock import locked
from espalier.loaders.pull_progress import PullProgress

RECORD = "espalier-model.json"
_TRASH = ".trash-"


@dataclass(frozen=True, slots=True)
class PulledModel:
    """A model in the store.

    Attributes:
        name: what it is called: an alias, `org/name` or `org/name:file`.
        kind: "gguf", "safetensors", or "broken" where `problem` says what is wrong.
        path: the model file, or the folder that holds its files.
        num_bytes: size of its files.
        pulled_at: UTC time in ISO form, to the second.
    """

    name: str
    kind: str
    path: Path
    num_bytes: int
    pulled_at: str
    licence: str
    source: str
    problem: str | None = None


def store_dir() -> Path:
    """The folder of pulled models."""
    return settings.cache_dir() / "models"


def find_pulled(name: str) -> PulledModel | None:
    """The model called `name`, or None where it is absent or not whole (by its size)."""
    folder = _folder_of(name)
    if not folder.is_dir():
        return None
    model = _read(folder)
    return model if model.problem is None else None


def list_pulled() -> list[PulledModel]:
    """Every model in the store by name, broken ones too."""
    root = store_dir()
    if not root.is_dir():
        return []
    folders = sorted(path for path in root.iterdir() if path.is_dir() and path.name[0] != ".")
    return [_read(folder) for folder in folders]


def remove_pulled(name_or_path: str, progress: PullProgress) -> PulledModel:
    """Removes a model, given by name or by a path of its files, and returns what it was.

    Raises UserInputError for a path outside the store, ModelNotFoundError for an unknown name.
    """
    name = _name_in_store(name_or_path)
    folder = _folder_of(name)
    with store_errors(), entry_lock(name, progress):
        if not folder.is_dir():
            raise ModelNotFoundError(
                f"no model {name_or_path!r} is in {store_dir()}; `espalier models list` shows "
                "those that are."
            )
        model = _read(folder)
        _discard(folder)
    return model


@contextmanager
def entry_lock(name: str, progress: PullProgress) -> Iterator[None]:
    """Excludes every other process and thread that adds or removes the model `name`."""

    def tell() -> None:
        progress.note(f"Another process is pulling {name}; waiting for it.")

    with locked(store_dir() / ".locks" / _quoted(name), tell):
        yield


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A new empty folder for a pull, gone at the end; the caller holds the entry's lock.

    What a killed pull of the same model left is removed first. It is renamed before: a download
    that outlived its parent then finds its folder gone and ends.
    """
    _empty_trash()
    partial = store_dir() / ".partial" / _quoted(name)
    if partial.exists():
        _discard(partial)
    partial.mkdir(parents=True)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def publish(
    folder: Path, name: str, *, kind: str, file_name: str, licence: str, source: str
) -> Path:
    """Moves a whole model into the store by one rename; returns its path there.

    `folder` holds the model's files and nothing else; `file_name` is the model file, or "." for
    the folder itself. A broken predecessor is replaced. The caller holds the entry's lock.
    """
    record = {
        "name": name,
        "kind": kind,
        "file": file_name,
        "num_bytes": _size_of(folder),
        "pulled_at": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "licence": licence,
        "source": source,
    }
    with open(folder / RECORD, "w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    target = _folder_of(name)
    if target.exists():
        _discard(target)
    folder.rename(target)
    return target if file_name == "." else target / file_name


@contextmanager
def store_errors() -> Iterator[None]:
    """Turns an OSError of the store's disk into a DownloadError that says what to do."""
    try:
        yield
    except OSError as error:
        raise DownloadError(explain_os_error(error)) from error


def explain_os_error(error: OSError) -> str:
    """One message for an OSError met in the store."""
    where = f"{store_dir()} (set ESPALIER_CACHE to use another folder)"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: {error}. Free some space below {where} and pull again."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"the model cache cannot be written: {error}. Models are kept in {where}."
    return f"the model cache failed: {error}. Models are kept in {where}."


def check_free_space(needed_bytes: int) -> None:
    """Raises DownloadError if the store's disk has less than `needed_bytes` free."""
    root = store_dir()
    root.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(root).free
    if free_bytes < needed_bytes:
        raise DownloadError(
            f"the pull needs {needed_bytes / 1e6:.0f} MB of disk for a moment and {root} has "
            f"{free_bytes / 1e6:.0f} MB free. Free some space, or set ESPALIER_CACHE to a folder "
            "on another disk."
        )


def _quoted(name: str) -> str:
    # One flat folder a model, whatever its name holds; "%2F" for "/". A leading dot is the
    # store's own.
    quoted = quote(name, safe="")
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def _folder_of(name: str) -> Path:
    return store_dir() / _quoted(name)


def _name_in_store(name_or_path: str) -> str:
    if _folder_of(name_or_path).is_dir():
        return name_or_path
    path = Path(os.path.expanduser(name_or_path))
    if not (path.is_absolute() or os.path.exists(path)):
        return name_or_path
    root = store_dir().resolve()
    resolved = path.resolve()
    if root not in resolved.parents:
        raise UserInputError(
            f"{name_or_path} is outside the model cache ({root}); only pulled models are removed. "
            "Delete other files yourself."
        )
    top = resolved.relative_to(root).parts[0]
    if top.startswith("."):
        raise UserInputError(
            f"{name_or_path} is not a pulled model but the cache's own folder {top}."
        )
    return unquote(top)


def _read(folder: Path) -> PulledModel:
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        file_name = record.pop("file")
        model = PulledModel(path=folder / file_name if file_name != "." else folder, **record)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        return PulledModel(
            unquote(folder.name), "broken", folder, _size_of(folder), "", "", "",
            problem=f"no readable record: {type(error).__name__}: {error}",
        )  # fmt: skip
    num_bytes = _size_of(folder)
    if num_bytes != model.num_bytes or not model.path.exists():
        values = {**asdict(model), "kind": "broken", "num_bytes": num_bytes}
        values["problem"] = f"{num_bytes} bytes are there, {model.num_bytes} were pulled"
        return PulledModel(**values)
    return model


def _size_of(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != RECORD)
    return sum(path.stat().st_size for path in files)


def _discard(path: Path) -> None:
    path.rename(store_dir() / f"{_TRASH}{secrets.token_hex(8)}")
    _empty_trash()


def _empty_trash() -> None:
    for path in store_dir().glob(f"{_TRASH}*"):
        shutil.rmtree(path, ignore_errors=True)
