"""scripts/bench-peers with a Python that only claims to make environments and to install."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from bench.peers.process import REPOSITORY

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the script is bash")

# As the base it makes an environment whose python is this script again; there, installing works
# unless $FAILS, and so does the proof.
_PYTHON = """#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then
  mkdir -p "$3/bin" && echo "home = x" > "$3/pyvenv.cfg" && cp "$0" "$3/bin/python"
  echo "$RELEASE" > "$3/release"
elif [ -n "$FAILS" ]; then
  echo "no such package" >&2
  exit 1
fi
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    python = tmp_path / "fake-python"
    python.write_text(_PYTHON)
    python.chmod(0o755)
    return python


def install(
    script: Path, *arguments: str, release: str = "1", fails: bool = False
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHON": str(script), "RELEASE": release}
    environment["FAILS"] = "yes" if fails else ""
    return subprocess.run(
        [REPOSITORY / "scripts" / "bench-peers", *arguments],
        cwd=script.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_relative_folder_is_that_of_the_caller(script: Path) -> None:
    done = install(script, "--dir", "some/peers", "xllamacpp")
    assert done.stdout.splitlines()[-1] == "xllamacpp: ready", done.stderr
    venv = script.parent / "some" / "peers" / "xllamacpp"
    assert (venv / "ready").exists()
    assert install(script, "--dir", "some/peers", "xllamacpp").stdout == "xllamacpp: is there\n"


def test_environment_is_replaced_only_by_one_that_works(script: Path) -> None:
    folder = script.parent / "peers"
    options = ("--dir", str(folder), "--again", "openvino")
    assert install(script, *options, release="1").returncode == 0
    failed = install(script, *options, release="2", fails=True)
    assert failed.returncode == 1
    assert "openvino: skipped: no such package (the one before is kept)" in failed.stdout
    venv = folder / "openvino"
    assert (venv / "ready").exists()
    assert (venv / "release").read_text() == "1\n"
    assert install(script, *options, release="3").returncode == 0
    assert (venv / "release").read_text() == "3\n"
    assert sorted(path.name for path in folder.iterdir()) == ["logs", "openvino"]


def test_environment_comes_back_after_a_run_that_was_killed(script: Path) -> None:
    folder = script.parent / "peers"
    install(script, "--dir", str(folder), "openvino")
    (folder / "openvino").rename(folder / "openvino.old")
    (folder / "openvino").mkdir()  # half made
    (folder / "openvino" / "pyvenv.cfg").touch()
    again = install(script, "--dir", str(folder), "openvino", fails=True)
    assert again.stdout == "openvino: is there\n"
    assert not (folder / "openvino.old").exists()


def test_what_is_no_environment_is_left_alone(script: Path) -> None:
    mine = script.parent / "peers" / "vllm"
    mine.mkdir(parents=True)
    (mine / "notes").touch()
    done = install(script, "--dir", str(mine.parent), "vllm")
    assert done.returncode == 1
    assert "is no virtual environment" in done.stdout
    assert (mine / "notes").exists()
