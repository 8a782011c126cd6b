"""A folder that appears whole or not at all, and what it may replace.

    <name>                     the folder, which comes by one rename
    .<name>.espalier-*/new     it, while it is written
    .<name>.espalier-*/old     what it replaces, for the moment of the exchange

Knows the names of the files that may be replaced, and nothing of what they hold.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from espalier.errors import ModelFileError, UserInputError, shown

_MARK = ".espalier-"
_NEW, _OLD = "new", "old"
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


class OutputFolder:
    """Where a folder is to be written.

    Its methods raise UserInputError for a place that cannot be used and ModelFileError where the
    disk fails.

    Attributes:
        path: the folder, as it was given. A link is followed.
    """

    def __init__(self, path: Path, own_names: frozenset[str], overwrites: bool) -> None:
        """With `overwrites`, a folder of nothing but files called `own_names` is replaced."""
        self.path = path
        self._target = Path(os.path.realpath(path))
        self._own_names = own_names
        self._overwrites = overwrites

    def check(self) -> None:
        """Refuses a place that could not be used now."""
        with self._disk_errors():
            self._check_place()
            self._check_contents(self._target)

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """An empty folder to fill, which takes its place at the end of the block.

        Where the block or that fails, what was there before is there again and nothing else is.
        What killed processes left of folders for the same place is removed first.
        """
        missing = [folder for folder in self._target.parents if not os.path.lexists(folder)]
        work = self._target.parent / f".{self._target.name}{_MARK}{secrets.token_hex(8)}"
        with self._disk_errors():
            try:
                self._target.parent.mkdir(parents=True, exist_ok=True)
                remove_leftovers(self._target)
                work.mkdir()
                with _marked_in_use(work):
                    (work / _NEW).mkdir()
                    yield work / _NEW
                    self._publish(work / _NEW, work / _OLD)
            except BaseException:
                shutil.rmtree(work / _NEW, ignore_errors=True)
                for folder in (work, *missing):
                    with suppress(OSError):
                        folder.rmdir()  # stays where it holds anything
                raise
        self._discard(work)

    def _check_place(self) -> None:
        if not self._target.exists():
            return
        if os.path.ismount(self._target) or os.path.samefile(self._target, os.curdir):
            raise UserInputError(
                f"{self.path} is the current folder or that of a mounted disk, which no other can "
                "take the place of; give a folder inside it."
            )

    def _check_contents(self, folder: Path) -> None:
        try:
            with os.scandir(folder) as entries:
                is_folder = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except FileNotFoundError:
            return
        except NotADirectoryError:
            raise UserInputError(f"{self._file_in_the_way()} is a file; give a folder.") from None
        if is_folder and not self._overwrites:
            raise UserInputError(
                f"{self.path} is not empty, it holds {shown(sorted(is_folder))}; give another "
                "folder, or replace an earlier export by --overwrite."
            )
        own = {name for name in self._own_names if not is_folder.get(name)}
        others = sorted(is_folder.keys() - own)
        if others:
            raise UserInputError(
                f"{self.path} holds {shown(others)}, and only a folder of nothing but exported "
                "files is overwritten; move the rest away or give another folder."
            )

    def _file_in_the_way(self) -> Path:
        if os.path.exists(self._target):
            return self.path
        return next((path for path in self._target.parents if os.path.isfile(path)), self.path)

    def _publish(self, new: Path, old: Path) -> None:
        try:
            new.rename(self._target)  # nothing is there, or an empty folder
            return
        except OSError as error:
            if not (self._overwrites and error.errno in _NOT_EMPTY):
                self.check()  # says what came there meanwhile
                raise
        try:
            self._target.rename(old)
            self._check_contents(old)
            new.rename(self._target)
        except BaseException:
            self._restore(old)
            raise

    def _restore(self, old: Path) -> None:
        if not os.path.lexists(old):
            return
        try:
            old.rename(self._target)
        except OSError as error:
            raise ModelFileError(
                f"{self.path} could be neither replaced nor put back ({error.strerror}); it is "
                f"{old} now. Move it where it belongs."
            ) from error

    def _discard(self, work: Path) -> None:
        try:
            shutil.rmtree(work)
        except OSError as error:
            raise ModelFileError(
                f"{self.path} is written, but what was there before could not be removed "
                f"({error.strerror}); delete {work}."
            ) from error

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ModelFileError(
                f"{self.path} cannot be written: {error.strerror or error}. Give another folder, "
                "or mend that."
            ) from error


def remove_leftovers(target: Path) -> None:
    """Removes what killed processes left next to `target`, and nothing that is in use.

    A folder that was moved aside and never replaced is kept.
    """
    name = re.compile(rf"\.{re.escape(target.name)}{re.escape(_MARK)}[0-9a-f]{{16}}")
    found: list[str] = []
    with suppress(PermissionError):  # a folder can be open to writing alone
        found = os.listdir(target.parent)
    for leftover in filter(name.fullmatch, found):
        with suppress(OSError):  # in use, or not to be locked here
            _remove_unused(target.parent / leftover)


def _remove_unused(work: Path) -> None:
    handle = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # An empty one may be just made and not marked yet.
        if os.listdir(work) == [_NEW]:
            shutil.rmtree(work)
    finally:
        os.close(handle)


@contextmanager
def _marked_in_use(work: Path) -> Iterator[None]:
    handle = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Shared, as network file systems give no other lock on a folder. Where there is none at
        # all, none can be taken to remove it either.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)
