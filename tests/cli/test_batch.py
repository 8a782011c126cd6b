"""`espalier run FILE.py:FUNCTION --batch`: order, flushing, broken rows, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from .conftest import Command

# Row "wait" does not end before the file "go" is there; row "fail" fails.
PROGRAMS = """
import pathlib, time
from espalier.backends.scripted import ScriptedBackend
from espalier.lang.api import gen
from espalier.lang.config import set_default_backend
from espalier.lang.function import function

def answer(call):
    word = call.text.split()[-1]
    if word == "fail":
        raise RuntimeError("down")
    return word.upper()

set_default_backend(ScriptedBackend(answer))

@function
def shout(s, word):
    while word == "wait" and not pathlib.Path("go").exists():
        time.sleep(0.01)
    s += "say " + word
    s += gen("loud")
    return len(word)
"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path) -> Path:
    file = tmp_path / "p.py"
    file.write_text(PROGRAMS)
    return file


def write_rows(folder: Path, *words: str) -> None:
    lines = [json.dumps({"word": word}) for word in words]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


BATCH = ("run", "p.py:shout", "--batch", "in.jsonl", "--out", "out.jsonl")


def test_results_are_in_the_order_of_the_rows(command: Command, tmp_path: Path) -> None:
    words = [f"w{index}" for index in range(300)]
    write_rows(tmp_path, *words)
    ended = command(*BATCH, "--concurrency", "7", "--report", "r.json")
    assert (ended.status, ended.out) == (0, ""), ended.err
    rows = read_rows(tmp_path / "out.jsonl")
    assert [row["row"] for row in rows] == list(range(1, 301))
    assert [row["variables"]["loud"] for row in rows] == [word.upper() for word in words]
    assert rows[0] == {
        "row": 1, "variables": {"loud": "W0"}, "return_value": 2, "text": "say w0W0",
    }  # fmt: skip
    assert ended.err.startswith("espalier: 300 programs, 300 calls in ")
    assert json.loads((tmp_path / "r.json").read_text())["programs"] == 300


def test_rows_may_be_arrays_and_empty_lines_are_passed_over(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text('\ufeff["a"]\n\n{"word": "b\u2028c"}\r\n')
    assert command(*BATCH).status == 0
    rows = read_rows(tmp_path / "out.jsonl")
    assert [(row["row"], row["return_value"]) for row in rows] == [(1, 1), (3, 3)]


def test_results_go_to_standard_output_without_out(command: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, "a", "b")
    ended = command("run", "p.py:shout", "--batch", "in.jsonl")
    assert [json.loads(line)["variables"]["loud"] for line in ended.out.splitlines()] == ["A", "B"]


def test_empty_batch_makes_an_empty_file(command: Command, tmp_path: Path) -> None:
    write_rows(tmp_path)
    (tmp_path / "in.jsonl").write_text("")
    ended = command(*BATCH)
    assert (ended.status, ended.err) == (0, "espalier: no program ran.\n")
    assert (tmp_path / "out.jsonl").read_text() == ""


BROKEN = {
    "{": "is not JSON",
    "7": "row 2 is 7; an object",
    '{"text": "x"}': "does not take these arguments",
    "[]": "does not take these arguments",
    '["a", "b"]': "does not take these arguments",
    '{"word": "x", "temperature": 1}': "does not take these arguments",
}


@pytest.mark.parametrize("line", BROKEN)
def test_broken_row_stops_the_batch_before_it_starts(
    command: Command, tmp_path: Path, line: str
) -> None:
    (tmp_path / "in.jsonl").write_text(f'["a"]\n{line}\n["c"]\n')
    ended = command(*BATCH)
    assert ended.status == 1
    assert ended.err.startswith("espalier: row 2")
    assert BROKEN[line] in ended.err
    assert not (tmp_path / "out.jsonl").exists()


def test_broken_rows_are_noted_where_errors_are_returned(command: Command, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{\n["a"]\n["fail"]\n7\n["b"]\n')
    ended = command(*BATCH, "--on-error", "return")
    assert ended.status == 0
    assert "espalier: 3 rows failed; see out.jsonl.\n" in ended.err
    rows = read_rows(tmp_path / "out.jsonl")
    assert [row["row"] for row in rows] == [1, 2, 3, 4, 5]
    assert ["error" in row for row in rows] == [True, False, True, True, False]
    assert rows[0]["error"]["type"] == "UserInputError"
    assert rows[2]["error"]["type"] == "GenerationError"
    assert "down" in rows[2]["error"]["message"]
    assert rows[4]["variables"] == {"loud": "B"}


def test_failing_row_stops_the_batch_and_keeps_the_finished(
    command: Command, tmp_path: Path
) -> None:
    write_rows(tmp_path, "a", "b", "fail", *"xyz" * 100)
    ended = command(*BATCH, "--concurrency", "1")
    assert ended.status == 1
    assert "espalier: row 3 failed: GenerationError: gen 'loud'" in ended.err
    assert "2 finished rows are in out.jsonl" in ended.err
    assert [row["row"] for row in read_rows(tmp_path / "out.jsonl")] == [1, 2]


@pytest.mark.parametrize("name", ["in.jsonl", "folder", "no/such"])
def test_output_that_cannot_be_used_is_refused(command: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    write_rows(tmp_path, "a")
    ended = command("run", "p.py:shout", "--batch", "in.jsonl", "--out", name)
    assert ended.status == 1
    assert f"espalier: --out {name}" in ended.err
    assert read_rows(tmp_path / "in.jsonl") == [{"word": "a"}]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
def test_output_that_becomes_full_is_told_in_one_line(command: Command, tmp_path: Path) -> None:
    write_rows(tmp_path, "one", "two")
    ended = command("run", "p.py:shout", "--batch", "in.jsonl", "--out", "/dev/full")
    assert ended.status == 1
    assert "espalier: --out /dev/full cannot be written: " in ended.err
    assert "Traceback" not in ended.err


def test_batch_that_cannot_be_read_is_refused(command: Command, tmp_path: Path) -> None:
    ended = command("run", "p.py:shout", "--batch", "no.jsonl")
    assert ended.status == 1
    assert "--batch no.jsonl cannot be read" in ended.err
    (tmp_path / "in.jsonl").write_bytes(b'["\xff"]\n')
    assert "is not UTF-8" in command(*BATCH).err


def start(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from espalier.cli.main import main; main()", *BATCH],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def wait_for_rows(path: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def test_rows_are_written_as_they_finish(tmp_path: Path) -> None:
    write_rows(tmp_path, "a", "b", "wait", "c")
    process = start(tmp_path)
    wait_for_rows(tmp_path / "out.jsonl", 2)
    time.sleep(0.1)
    assert [row["row"] for row in read_rows(tmp_path / "out.jsonl")] == [1, 2]
    (tmp_path / "go").touch()
    process.communicate(timeout=30)
    assert process.returncode == 0
    assert [row["row"] for row in read_rows(tmp_path / "out.jsonl")] == [1, 2, 3, 4]


def test_interrupt_keeps_every_finished_row(tmp_path: Path) -> None:
    write_rows(tmp_path, "a", "b", "wait", "c", "d")
    process = start(tmp_path)
    wait_for_rows(tmp_path / "out.jsonl", 2)
    time.sleep(0.3)  # rows 4 and 5 end behind row 3
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    (tmp_path / "go").touch()
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "espalier: interrupted. 4 of 5 rows are finished and kept in out.jsonl.\n" in err
    assert "espalier: 5 programs, 4 calls in " in err
    rows = read_rows(tmp_path / "out.jsonl")
    assert [row["row"] for row in rows] == [1, 2, 4, 5]
    assert [row["variables"]["loud"] for row in rows] == ["A", "B", "C", "D"]
