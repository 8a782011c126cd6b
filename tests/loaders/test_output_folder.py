"""A folder comes whole or not at all: what is in the way, what is replaced, what is left behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from espalier.errors import ModelFileError, UserInputError
from espalier.loaders.output_folder import OutputFolder, remove_leftovers

NAMES = frozenset({"a.json", "b.json"})


def replacing(path: Path) -> OutputFolder:
    return OutputFolder(path, NAMES, overwrites=True)


def keeping(path: Path) -> OutputFolder:
    return OutputFolder(path, NAMES, overwrites=False)


def write(
    target: OutputFolder, text: str = "new", meanwhile: Callable[[], object] = lambda: None
) -> None:
    target.check()
    with target.writing() as folder:
        (folder / "a.json").write_text(text)
        meanwhile()


def contents(folder: Path) -> dict[str, str | None]:
    """Text of every file below a folder; None for a folder."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_text()
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("make", [keeping, replacing])
def test_folder_comes_where_none_or_an_empty_one_is(
    make: Callable[[Path], OutputFolder], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("absent", "empty", "deep/er"):
        write(make(tmp_path / name))
    assert contents(tmp_path) == {
        "absent": None,
        "absent/a.json": "new",
        "empty": None,
        "empty/a.json": "new",
        "deep": None,
        "deep/er": None,
        "deep/er/a.json": "new",
    }


def test_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    write(keeping(tmp_path / "out"))
    assert (tmp_path / "out").is_symlink()
    write(replacing(tmp_path / "out"), "newer")
    assert contents(tmp_path / "disk") == {"a.json": "newer"}


def test_folder_of_own_files_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/b.json").write_text("stale")
    with pytest.raises(UserInputError, match=r"is not empty, it holds \['b.json'\]"):
        write(keeping(tmp_path / "out"))
    write(replacing(tmp_path / "out"))
    assert contents(tmp_path) == {"out": None, "out/a.json": "new"}


@pytest.mark.parametrize("other", ["notes.txt", ".hidden", "chat_template.jinja", "b.json/x"])
def test_folder_with_anything_else_is_never_replaced(other: str, tmp_path: Path) -> None:
    (tmp_path / "out/a.json").parent.mkdir()
    (tmp_path / "out/a.json").write_text("old")
    (tmp_path / "out" / other).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / other).write_text("mine")
    before = contents(tmp_path)
    name = Path(other).parts[0]
    with pytest.raises(UserInputError, match=rf"holds \['{name}'\], and only"):
        write(replacing(tmp_path / "out"))
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("make", "before"), [(keeping, {}), (replacing, {}), (replacing, {"a.json": "old"})]
)
def test_file_that_appears_after_the_check_is_kept(
    make: Callable[[Path], OutputFolder], before: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for name, text in before.items():
        out.mkdir()
        (out / name).write_text(text)

    def appear() -> None:
        out.mkdir(exist_ok=True)
        (out / "notes.txt").write_text("mine")

    with pytest.raises(UserInputError, match=r"holds \['notes.txt'\]"):
        write(make(out), meanwhile=appear)
    assert contents(out) == {**before, "notes.txt": "mine"}
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("make", [keeping, replacing])
def test_file_that_appears_in_the_place_of_the_folder_is_kept(
    make: Callable[[Path], OutputFolder], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserInputError, match="out is a file"):
        write(make(out), meanwhile=out.touch)
    assert contents(tmp_path) == {"out": ""}


def fail_renames(monkeypatch: pytest.MonkeyPatch, *failing: str) -> None:
    """From now on no rename of a folder of these names works where another was moved aside."""
    rename = Path.rename

    def failing_rename(path: Path, target: Path) -> Path:
        if path.name in failing and (path.parent / "old").exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", failing_rename)


def test_old_folder_is_put_back_where_the_exchange_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(keeping(tmp_path / "out"), "old")
    fail_renames(monkeypatch, "new")
    with pytest.raises(ModelFileError, match=r"out cannot be written: Input/output error\."):
        write(replacing(tmp_path / "out"))
    assert contents(tmp_path) == {"out": None, "out/a.json": "old"}


def test_old_folder_is_never_removed_where_it_cannot_be_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(keeping(tmp_path / "out"), "old")
    fail_renames(monkeypatch, "new", "old")
    with pytest.raises(ModelFileError, match="neither replaced nor put back") as raised:
        write(replacing(tmp_path / "out"))
    monkeypatch.undo()
    (work,) = tmp_path.iterdir()
    assert str(work / "old") in str(raised.value)
    write(keeping(tmp_path / "out"))
    assert contents(work) == {"old": None, "old/a.json": "old"}


def test_nothing_is_left_where_the_block_fails(tmp_path: Path) -> None:
    write(keeping(tmp_path / "out"), "old")
    before = contents(tmp_path)

    def interrupt() -> None:
        raise KeyboardInterrupt

    for path in (tmp_path / "out", tmp_path / "deep/er/out"):
        with pytest.raises(KeyboardInterrupt):
            write(replacing(path), meanwhile=interrupt)
        assert contents(tmp_path) == before


def test_place_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserInputError, match=r"/file is a file; give a folder\."):
        keeping(tmp_path / "file/deep/er").check()


@pytest.mark.parametrize("length", [240, 300])
def test_name_that_is_too_long_is_explained(length: int, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="cannot be written: File name too long"):
        write(keeping(tmp_path / "deep" / ("x" * length)))
    assert contents(tmp_path) == {}


def test_link_that_leads_to_itself_is_explained(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "out")
    with pytest.raises(ModelFileError, match="cannot be written: Too many levels of symbolic"):
        write(keeping(tmp_path / "out"))


@pytest.mark.parametrize(("owner", "call"), [(os, "scandir"), (Path, "mkdir")])
def test_folder_that_may_not_be_read_or_written_is_explained(
    owner: object, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    # Replaced, because the tests may run as root, to whom every folder is open.
    with monkeypatch.context() as patched:
        patched.setattr(owner, call, refuse)
        with pytest.raises(ModelFileError, match=r"out cannot be written: Permission denied\."):
            write(keeping(tmp_path / "out"))
    assert contents(tmp_path) == {"out": None}


def test_folder_that_no_other_can_take_the_place_of_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path(), tmp_path, Path("/")):
        with pytest.raises(UserInputError, match="is the current folder or that of a mounted"):
            replacing(path).check()


def test_what_cannot_be_removed_afterwards_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(keeping(tmp_path / "out"), "old")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    monkeypatch.setattr("espalier.loaders.output_folder.shutil.rmtree", refuse)
    with pytest.raises(ModelFileError, match=r"is written, .* delete .*/\.out\.espalier-"):
        write(replacing(tmp_path / "out"))
    assert contents(tmp_path / "out") == {"a.json": "new"}


KILLED = """
import os, signal, sys
from pathlib import Path
from espalier.loaders.output_folder import OutputFolder

with OutputFolder(Path(sys.argv[1]), frozenset(), overwrites=False).writing() as new:
    (new / "a.json").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_leftover_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    out = tmp_path / "out"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    (work,) = tmp_path.iterdir()
    assert contents(work) == {"new": None, "new/a.json": "half"}
    write(keeping(tmp_path / "other"))
    assert work.exists()
    write(keeping(out))
    assert contents(tmp_path) == {
        "other": None, "other/a.json": "new", "out": None, "out/a.json": "new",
    }  # fmt: skip


def test_leftovers_that_are_in_use_or_not_ours_are_kept(tmp_path: Path) -> None:
    left = [
        f".out.espalier-{'0' * 16}",  # empty: may be just made
        f".out.espalier-{'1' * 16}/old/a.json",  # moved aside, the only one there is
        f".out.espalier-{'2' * 16}/new/a.json",  # the one that goes
        f".outer.espalier-{'0' * 16}/new/a.json",
        ".out.espalier-notes/new/a.json",
        ".out.backup/new/a.json",
    ]
    for name in left:
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / f".out.espalier-{'3' * 16}").symlink_to(tmp_path / ".out.backup")
    before = contents(tmp_path)
    out = tmp_path / "out"
    write(keeping(out), "slow", meanwhile=lambda: remove_leftovers(out))
    gone = f".out.espalier-{'2' * 16}"
    expected = {name: text for name, text in before.items() if not name.startswith(gone)}
    assert contents(tmp_path) == {**expected, "out": None, "out/a.json": "slow"}
