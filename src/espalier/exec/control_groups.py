"""Which control groups (versions 1 and 2) of Linux this process lies in.

Knows where the groups' folders are mounted and who lies in whom, and nothing of what the files in
them mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One group: its folder, and the version whose files lie there."""

    folder: Path
    version: int

    def read(self, name: str) -> str | None:
        """Text of one of its files, or None where that cannot be read."""
        return read_text(self.folder / name)


def control_groups(controller: str, root: Path = Path("/")) -> Iterator[ControlGroup]:
    """The groups around this process that may limit what `controller` controls, innermost first.

    A container sees its own group as the mount's top under a path that is not there: folders may
    not exist. `root` is where /proc and /sys are mounted.
    """
    for line in (read_text(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        mounts = root / "sys/fs/cgroup"
        if controllers == "":
            yield from _upwards(mounts, path, 2)
        elif controller in controllers.split(","):
            # Controllers that are mounted together have a folder of all names, and as a rule links.
            together = mounts / controllers
            mount = together if together.is_dir() else mounts / controller
            yield from _upwards(mount, path, 1)


def read_text(path: Path) -> str | None:
    """Text of a small system file, or None where it cannot be read."""
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None


def _upwards(mount: Path, path: str, version: int) -> Iterator[ControlGroup]:
    inner = mount / path.lstrip("/")
    for folder in (inner, *inner.parents):
        yield ControlGroup(folder, version)
        if folder == mount:
            break
