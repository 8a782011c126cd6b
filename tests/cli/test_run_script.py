"""`espalier run FILE.py`: as Python would run it, with a default backend and a report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Command

SCRIPT = """
import json, os, sys
import helper
from espalier.backends.scripted import ScriptedBackend
from espalier.lang.api import gen
from espalier.lang.config import set_default_backend
from espalier.lang.function import function

@function
def ask(s, question):
    s += question + gen("answer")

set_default_backend(ScriptedBackend("four tokens of text", model_name="script"))
if __name__ == "__main__":
    states = [ask("1 2 3"), ask.run("1 2 3 4")]
    print(json.dumps([sys.argv, [s["answer"] for s in states], helper.NAME, __file__]))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "helper.py").write_text("NAME = 'beside'\n")
    (folder / "x.py").write_text(SCRIPT)
    return folder / "x.py"


def test_script_sees_what_python_would_give_it(command: Command, script: Path) -> None:
    ended = command("run", "folder/x.py", "--model", "not-ours", "-v", "p.py:f")
    assert ended.status == 0, ended.err
    argv, answers, beside, file = json.loads(ended.out)
    assert argv == ["folder/x.py", "--model", "not-ours", "-v", "p.py:f"]
    assert answers == ["four tokens of text"] * 2
    assert beside == "beside"
    assert file == "folder/x.py"


def test_script_ends_with_a_report(command: Command, script: Path, tmp_path: Path) -> None:
    ended = command("run", "--report", "report.json", str(script))
    lines = ended.err.splitlines()
    assert lines[0].startswith("espalier: 2 programs, 2 calls in 0.")
    assert lines[0].endswith(" s on script")
    assert lines[1] == "  prompt     7 tokens: 0 cached (0.0%), 7 computed"
    assert lines[2].startswith("  generated  8 tokens, ")
    assert len(lines) == 3
    report = json.loads((tmp_path / "report.json").read_text())
    assert list(report) == [
        "programs", "calls", "prompt_tokens", "cached_tokens", "forced_tokens", "computed_tokens",
        "generated_tokens", "hit_rate", "ttft_ms", "tokens_per_s", "wall_s", "model",
    ]  # fmt: skip
    assert report["programs"] == report["calls"] == 2
    assert report["generated_tokens"] == 8
    assert report["model"] == "script"
    assert report["tokens_per_s"] == pytest.approx(8 / report["wall_s"], rel=0.1)


def test_script_without_programs_starts_no_engine(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("print('hello')\n")
    ended = command("run", "x.py")
    assert ended == (0, "hello\n", "espalier: no program ran.\n")


def test_engine_options_without_effect_are_told(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("pass\n")
    ended = command("run", "--model", "smollm2", "--threads", "1", "x.py")
    assert "model, num_threads had no effect" in ended.err


def test_model_that_is_missing_fails_where_it_is_needed(command: Command, script: Path) -> None:
    text = script.read_text().replace("set_default_backend(Scripted", "(Scripted")
    script.write_text(text)
    ended = command("run", "--model", "missing.gguf", str(script))
    assert ended.status == 1
    assert ended.err.startswith("espalier: there is no file or folder missing.gguf.")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    ("body", "status", "err"),
    [
        ("import sys; sys.exit(7)", 7, ""),
        ("raise SystemExit('bye')", 1, "bye\n"),
        ("raise SystemExit", 0, ""),
        ("exit()", 0, ""),
    ],
)
def test_script_sets_the_exit_status(
    command: Command, tmp_path: Path, body: str, status: int, err: str
) -> None:
    (tmp_path / "x.py").write_text(body)
    ended = command("run", "x.py")
    assert ended.status == status
    assert ended.err == err + "espalier: no program ran.\n"


@pytest.mark.parametrize(
    "body",
    [
        "def f():\n    raise ValueError('no')\nf()\n",
        "x = (\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e\n",
        "# -*- coding: latin-1 -*-\nraise RuntimeError\n",
    ],
)
def test_traceback_is_that_of_python(tmp_path: Path, body: str) -> None:
    (tmp_path / "x.py").write_text(body)
    plain = subprocess.run(
        [sys.executable, "x.py"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    ours = subprocess.run(
        [sys.executable, "-c", "from espalier.cli.main import main; main()", "run", "x.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)},
    )
    assert ours.returncode == plain.returncode == 1
    lines = plain.stderr.replace(str(tmp_path / "x.py"), "x.py")
    assert ours.stderr.replace(str(tmp_path / "x.py"), "x.py") == (
        lines + "espalier: no program ran.\n"
    )


def test_threads_of_the_script_are_waited_for(command: Command, tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\n"
    )
    assert command("run", "x.py").out == "late\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "1", "x.py"], "--seed needs FILE.py:FUNCTION"),
        (["--max-new-tokens", "1", "x.py"], "--max-new-tokens needs FILE.py:FUNCTION"),
        (["--input", "{}", "x.py"], "--input needs FILE.py:FUNCTION"),
        (["--out", "o", "x.py"], "--out needs FILE.py:FUNCTION"),
        (["--report", "no/such/folder", "x.py"], "--report no/such/folder cannot be written"),
        (["x.txt"], "cannot be run"),
    ],
)
def test_options_without_effect_are_refused(
    command: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "x.py").write_text("print('must not run')\n")
    ended = command("run", *arguments)
    assert ended.out == ""
    assert message in ended.err
    assert ended.status == (1 if "--report" in arguments else 2)


def test_missing_script_fails_in_one_line(command: Command) -> None:
    assert command("run", "x.py") == (1, "", "espalier: there is no file x.py.\n")
