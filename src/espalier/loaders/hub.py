"""Models of the Hugging Face hub, through the optional package `huggingface_hub`.

It chooses which files of a repository make a model, has them downloaded into the folder that it
is given, and checks them against what the hub says of them.
"""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from espalier.errors import DownloadError, ModelNotFoundError
from espalier.loaders.store import store_errors
from espalier.loaders.wheel import file_sha256

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME = re.compile(rf"(?P<repo>{_PART}/{_PART})(?::(?P<file>[^:\\]+\.gguf))?")
# Beside the weights: what the loader and the tokenizer read.
_FOLDER_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja", "chat_template.json",
    "model.safetensors.index.json",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class HubName:
    """`org/name`, or `org/name:file.gguf` for one file of it."""

    repo: str
    file: str | None

    def __str__(self) -> str:
        return self.repo if self.file is None else f"{self.repo}:{self.file}"


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository; size and digest are None where the hub does not tell."""

    path: str
    num_bytes: int | None
    sha256: str | None


def parse_hub_name(text: str) -> HubName | None:
    """The name that `text` spells, or None where it does not have the form of one."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    file = match["file"]
    if file is not None and (".." in PurePosixPath(file).parts or file.startswith("/")):
        return None
    return HubName(match["repo"], file)


class HubRepository:
    """One repository at its newest revision, listed once, so that all files are of one commit."""

    def __init__(self, name: HubName) -> None:
        self._hub = _import_hub()
        self.name = name
        info = self._call(lambda: self._hub.HfApi().model_info(name.repo, files_metadata=True))
        self.revision: str = info.sha
        self.licence = _licence_of(info)
        self.files = {file.path: file for file in map(_as_file, info.siblings)}

    def choose(self) -> list[HubFile]:
        """The files that make the model.

        Raises ModelNotFoundError where there is none, or several GGUF files to choose from.
        """
        if self.name.file is not None:
            if self.name.file not in self.files:
                raise ModelNotFoundError(
                    f"{self.name.repo} has no file {self.name.file}; {self._gguf_choices()}"
                )
            return [self.files[self.name.file]]
        weights = [file for path, file in self.files.items() if _is_weights(path)]
        if weights and "config.json" in self.files:
            beside = [self.files[path] for path in _FOLDER_FILES if path in self.files]
            return [*beside, *weights]
        gguf = self._gguf_paths()
        if len(gguf) == 1:
            return [self.files[gguf[0]]]
        raise ModelNotFoundError(
            f"{self.name.repo} is not one model: it has no config.json with .safetensors files, "
            f"and {self._gguf_choices()}"
        )

    def fetch(self, files: list[HubFile], folder: Path) -> str:
        """Downloads `files` into `folder`, checked; returns the model's path in it, or "."."""
        with _bars_on_terminals_only(self._hub.utils):
            self._call(
                lambda: self._hub.snapshot_download(
                    self.name.repo,
                    revision=self.revision,
                    allow_patterns=[file.path for file in files],
                    local_dir=str(folder),
                )
            )
        # The hub's client leaves its own notes there.
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        with store_errors():
            for file in files:
                _check(self.name, file, folder / file.path)
        return files[0].path if len(files) == 1 else "."

    def _gguf_paths(self) -> list[str]:
        return sorted(path for path in self.files if path.endswith(".gguf"))

    def _gguf_choices(self) -> str:
        names = [f"{self.name.repo}:{path}" for path in self._gguf_paths()]
        return f"choose one of {', '.join(names)}." if names else "it has no .gguf file."

    def _call(self, action: Any) -> Any:
        try:
            return action()
        except Exception as error:
            # The client raises its own, requests' and the system's errors alike.
            raise DownloadError(
                f"{self.name.repo} could not be had from the hub: {type(error).__name__}: "
                f"{_first_line(error)}. Check the name, the network, and for a gated model that "
                "you are logged in (`hf auth login`)."
            ) from error


def _import_hub() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise DownloadError(
            "a model of the Hugging Face hub needs the package huggingface_hub: run "
            "`pip install 'espalier-lm[hub]'`. Or give a local file or folder."
        ) from error


@contextmanager
def _bars_on_terminals_only(utils: Any) -> Iterator[None]:
    # The hub's client draws its bars into log files too, unless told otherwise.
    silence = not sys.stderr.isatty() and not utils.are_progress_bars_disabled()
    if silence:
        utils.disable_progress_bars()
    try:
        yield
    finally:
        if silence:
            utils.enable_progress_bars()


def _as_file(sibling: Any) -> HubFile:
    lfs = getattr(sibling, "lfs", None)
    sha256 = lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", None)
    return HubFile(sibling.rfilename, getattr(sibling, "size", None), sha256)


def _licence_of(info: Any) -> str:
    tags = getattr(info, "tags", None) or []
    named = [tag.removeprefix("license:") for tag in tags if tag.startswith("license:")]
    return named[0] if named else "not stated"


def _is_weights(path: str) -> bool:
    return path.endswith(".safetensors") and "/" not in path


def _check(name: HubName, file: HubFile, path: Path) -> None:
    if not path.is_file():
        raise DownloadError(f"{name}: {file.path} did not arrive. Pull again.")
    num_bytes = path.stat().st_size
    if file.num_bytes is not None and num_bytes != file.num_bytes:
        raise DownloadError(
            f"{name}: {file.path} came as {num_bytes} bytes, {file.num_bytes} were expected. It "
            "was thrown away. Pull again."
        )
    if file.sha256 is not None and file_sha256(path) != file.sha256:
        raise DownloadError(
            f"{name}: the sha256 of {file.path} is not {file.sha256} as the hub says. It was "
            "thrown away. Pull again."
        )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")
