"""Data files from the web, kept in the cache folder. Not for models: those are pulled."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit

from espalier import settings
from espalier.errors import DownloadError, UserInputError, shown

MAX_BYTES = 4 << 30
TIMEOUT_S = 60.0  # without a byte
_PIECE_BYTES = 1 << 20


def download_and_cache_file(url: str, filename: str | None = None) -> str:
    """The path of a file from the web, which is fetched where it is not there yet.

    It lies at `filename`, or in the cache folder under a name made of the URL. It appears when it
    is whole. Raises UserInputError for what is no http(s) URL, and DownloadError.
    """
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise UserInputError(f"the URL is {shown(url)}; one of http:// or https:// is allowed.")
    target = _cache_path(url) if filename is None else Path(filename).expanduser()
    if not target.is_file():
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _fetch(url, target)
        except (OSError, HTTPException) as error:
            raise DownloadError(
                f"{url} could not be fetched: {error}. Fetch it yourself and put it at {target}."
            ) from error
    return str(target)


def _cache_path(url: str) -> Path:
    name = Path(unquote(urlsplit(url).path)).name or "index"
    digest = hashlib.sha256(url.encode()).hexdigest()[:12]
    return settings.cache_dir() / "data" / f"{digest}-{name[-100:]}"


def _fetch(url: str, target: Path) -> None:
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with (
            urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer,
            open(partial, "xb") as file,
        ):
            told = answer.headers.get("Content-Length")
            _copy(answer, file, None if told is None else int(told))
        os.replace(partial, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()


def _copy(source: IO[bytes], target: IO[bytes], told_bytes: int | None) -> None:
    num_bytes = 0
    while piece := source.read(_PIECE_BYTES):
        num_bytes += len(piece)
        if num_bytes > MAX_BYTES:
            raise OSError(f"it has more than {MAX_BYTES} bytes")
        target.write(piece)
    if told_bytes is not None and num_bytes != told_bytes:
        raise OSError(f"{num_bytes} of {told_bytes} bytes came")
