"""`espalier run FILE.py:FUNCTION`: one program, once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Command

PROGRAMS = """
from espalier.backends.scripted import ScriptedBackend
from espalier.lang.api import gen, select
from espalier.lang.config import set_default_backend
from espalier.lang.function import function

ANSWERS = {"capital": "Paris", "fail": RuntimeError("down"), "big": "yes"}
BACKEND = ScriptedBackend(ANSWERS)
set_default_backend(BACKEND)
LIMIT = 3

@function
def ask(s, question, *, times=1):
    s += question
    s += gen("answer")
    s += " Is it big? "
    s += select("size", choices=["yes", "no"])

@function
def value(s):
    s += "capital"
    s += gen("answer")
    return {"city": s["answer"], "letters": len(s["answer"])}

@function
def text(s):
    s += "capital"
    return "as it is: " + s.text()

@function
async def later(s, question):
    s += question
    s += gen("answer")
    return await s.aget("answer")

@function
def fails(s):
    s += "fail"
    s += gen("answer")

@function
def raises(s):
    raise ValueError("in the body")

@function
def misreads(s):
    s += "capital"
    return s["b"]

@function
def misasks(s):
    s += gen("a", temperature=-1)

@function
def seeded(s, seed=1):
    s += "capital"

def plain(s):
    pass

if __name__ == "__main__":
    raise SystemExit("the main block must not run")
"""


def line_of(code: str) -> int:
    lines = [number for number, line in enumerate(PROGRAMS.split("\n"), 1) if code in line]
    assert len(lines) == 1
    return lines[0]


@pytest.fixture(autouse=True)
def programs(tmp_path: Path) -> Path:
    file = tmp_path / "p.py"
    file.write_text(PROGRAMS)
    return file


def test_variables_are_printed_as_json(command: Command) -> None:
    ended = command("run", "p.py:ask", "--input", '{"question": "The capital?"}')
    assert ended.status == 0, ended.err
    assert json.loads(ended.out) == {"answer": "Paris", "size": "yes"}
    assert ended.err.startswith("espalier: 1 program, 2 calls in ")


def test_input_may_be_an_array_in_order(command: Command) -> None:
    ended = command("run", "--input", '["The capital?"]', "p.py:ask")
    assert json.loads(ended.out)["answer"] == "Paris"


def test_return_value_is_printed_where_there_is_one(command: Command) -> None:
    assert json.loads(command("run", "p.py:value").out) == {"city": "Paris", "letters": 5}
    assert command("run", "p.py:text").out == "as it is: capital\n"
    assert command("run", "p.py:later", "--input", '["capital"]').out == "Paris\n"


def test_show_chooses_what_is_printed(command: Command) -> None:
    assert json.loads(command("run", "p.py:value", "--show", "variables").out) == {
        "answer": "Paris"
    }
    assert command("run", "p.py:value", "--show", "text").out == "capitalParis\n"
    shown = json.loads(command("run", "p.py:value", "--show", "all").out)
    assert list(shown) == ["variables", "return_value", "text"]


def test_sampling_options_are_the_defaults_of_the_run(command: Command, programs: Path) -> None:
    programs.write_text(
        PROGRAMS + "\n@function\n"
        "def told(s):\n"
        "    s += 'capital'\n"
        "    s += gen('answer', top_k=3)\n"
        "    s.sync()\n"
        "    p = BACKEND.calls[-1].sampling\n"
        "    return [p.max_new_tokens, p.temperature, p.top_k, list(p.stop), p.ignore_eos]\n"
    )
    ended = command(
        "run", "p.py:told", "--max-new-tokens", "5", "--temperature", "0.5", "--top-k", "9",
        "--stop", "x", "--stop", "y", "--seed", "4",
    )  # fmt: skip
    assert json.loads(ended.out) == [5, 0.5, 3, ["x", "y"], False], ended.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["p.py:missing"], "p.py defines no 'missing'; its programs are ask, fails, later"),
        (["p.py:plain"], "'plain' in p.py is no program but function"),
        (["p.py:LIMIT"], "'LIMIT' in p.py is no program but int"),
        (["p.py:ask"], "missing a required argument: 'question'"),
        (["p.py:ask", "--input", '{"q": 1}'], "does not take these arguments"),
        (["p.py:ask", "--input", "{"], "is not JSON"),
        (["p.py:ask", "--input", '"text"'], "a JSON object of arguments by name"),
        (["p.py:seeded", "--seed", "2"], "has a parameter 'seed' of its own"),
        (["p.py:fails"], "gen 'answer' at p.py:"),
        (["p.py:misreads"], f"(at p.py:{line_of('return s[')})"),
        (["p.py:misasks"], f"(at p.py:{line_of('temperature=-1')})"),
        (["p.py:value", "--temperature", "0.5", "--top-p", "7"], "top_p is 7"),
    ],
)
def test_errors_are_one_line(command: Command, arguments: list[str], message: str) -> None:
    ended = command("run", *arguments)
    assert (ended.status, ended.out) == (1, "")
    errors = [line for line in ended.err.splitlines() if line.startswith("espalier: ")]
    assert message in errors[0]
    assert "Traceback" not in ended.err


def test_error_of_the_body_shows_its_traceback(command: Command) -> None:
    ended = command("run", "p.py:raises")
    assert ended.status == 1
    lines = ended.err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert 'p.py", line' in lines[1]
    assert "ValueError: in the body" in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["p.py:ask", "stray"], "unexpected 'stray'"),
        (["p.py:ask", "--out", "o"], "--out needs --batch"),
        (["p.py:ask", "--on-error", "return"], "--on-error needs --batch"),
        (["p.py:ask", "--concurrency", "3"], "--concurrency needs --batch"),
        (["p.py:ask", "--batch", "b", "--input", "{}"], "--input cannot be used with --batch"),
        (["p.py:ask", "--batch", "b", "--on-error", "stop"], "allowed are raise, return"),
        (["p.py:ask", "--show", "nothing"], "allowed are result, variables, text, all"),
    ],
)
def test_contradicting_options_end_with_2(
    command: Command, arguments: list[str], message: str
) -> None:
    ended = command("run", *arguments)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
