"""`espalier plan`: options, rows, outputs and exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.tiny_folder import write_tiny_folder

from .conftest import Command, Ended

PROGRAM = """
import espalier
from espalier import gen, select

@espalier.function
def ask(s, word):
    s += "The same words come first in every row. " + word + ":"
    s += gen("answer", max_tokens=9) + select("mark", choices=["good", "bad"])
    if word == "break":
        raise ValueError("no such word")
    if s["mark"] == "bad":
        s += gen("why", max_tokens=4)

@espalier.function
def silent(s):
    s += "nothing"
"""


@pytest.fixture
def plan(command: Command, tmp_path: Path) -> Command:
    """`plan("ask", ...)` runs `espalier plan program.py:ask ...` with a tiny model."""
    write_tiny_folder(tmp_path / "tiny")
    (tmp_path / "program.py").write_text(PROGRAM)
    rows = [{"word": "one"}, {"word": "two"}, ["three"]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def run(function: str, *arguments: str) -> Ended:
        return command("plan", f"program.py:{function}", "--model", "tiny", *arguments)

    return run


def test_plan_prints_parts_prices_and_assumptions(plan: Command) -> None:
    ended = plan("ask", "--batch", "rows.jsonl", "--output-tokens", "5")
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert lines[0].startswith("Plan of ask on tiny: 3 rows, cache ")
    # 40 characters, and "one:", "two:" and "three:", of which the last two share a letter.
    assert lines[4].split() == ["answer", "(line", "8)", "3", "134", "53", "60.4%", "0", "15"]
    assert "Assumed: stated length for answer." in lines
    assert "Assumed: the first choice for mark." in lines
    assert max(map(len, lines)) <= 80


def test_json_has_every_count(plan: Command) -> None:
    ended = plan(
        "ask", "--batch", "rows.jsonl", "--json", "--assume", "mark=good", "--assume", "mark=bad",
        "--output-tokens", "why=2", "--cache-tokens", "unlimited",
    )  # fmt: skip
    made = json.loads(ended.out)
    assert made["cache_tokens"] is None
    assert {part["name"]: part["requests"] for part in made["parts"]} == {
        "answer": 3, "mark": 3, "why": 1,
    }  # fmt: skip
    assert (
        sum(part["computed_tokens"] for part in made["parts"]) == made["total"]["computed_tokens"]
    )
    assert made["total"]["hit_rate"] <= made["optimal_hit_rate"]


def test_a_broken_row_is_named_and_others_go_on(plan: Command, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"word": "one"}\n{broken\n\n{"words": 1}\n["break"]\n')
    stopped = plan("ask", "--batch", "rows.jsonl")
    assert (stopped.status, stopped.out) == (1, "")
    assert "row 2 is not JSON" in stopped.err
    assert "(2 rows are broken in all)" in stopped.err
    ended = plan("ask", "--batch", "rows.jsonl", "--on-error", "return")
    assert (ended.status, ended.err) == (0, "")
    assert "3 rows could not be planned" in ended.out
    for told in ("row 2: UserInputError", "row 4: UserInputError", "row 5: ValueError"):
        assert told in ended.out


def test_a_program_that_raises_stops_the_plan(plan: Command) -> None:
    ended = plan("ask", "--input", '["break"]')
    assert (ended.status, ended.out) == (1, "")
    assert "row 1 cannot be planned: ValueError: no such word" in ended.err


def test_a_report_is_written(plan: Command, tmp_path: Path) -> None:
    assert plan("ask", "--batch", "rows.jsonl", "--report", "plan.html").status == 0
    assert "<h1>Plan of ask</h1>" in (tmp_path / "plan.html").read_text(encoding="utf-8")


def test_a_program_without_calls(plan: Command) -> None:
    ended = plan("silent")
    assert (ended.status, ended.err) == (0, "")
    assert "The program makes no call of the model." in ended.out


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--output-tokens", "-3"), 1, "the output length is -3"),
        (("--output-tokens", "few"), 2, "N or NAME=N"),
        (("--output-tokens", "=3"), 2, "N or NAME=N"),
        (("--output-tokens", "3", "--output-tokens", "4"), 2, "twice"),
        (("--output-tokens", "anser=3"), 1, "its calls set answer, mark"),
        (("--output-tokens", "mark=3"), 1, "generates nothing"),
        (("--assume", "answer"), 2, "NAME=TEXT"),
        (("--assume", "mark=fine"), 1, "none of its choices: 'good', 'bad'"),
        (("--cache-tokens", "much"), 2, "a number or unlimited"),
        (("--cache-tokens", "0"), 1, "cache_tokens is 0"),
        (("--prices", "none.json"), 1, "none.json cannot be read"),
        (("--report", "missing/plan.html"), 1, "cannot be written"),
        (("--on-error", "skip"), 2, "raise, return"),
        (("--batch", "rows.jsonl"), 2, "--input cannot be used with --batch"),
    ],
)
def test_what_makes_no_sense_is_refused(
    plan: Command, arguments: tuple[str, ...], status: int, told: str
) -> None:
    ended = plan("ask", "--input", '["one"]', *arguments)
    assert (ended.status, ended.out) == (status, "")
    assert told in ended.err


def test_targets_and_models_that_are_not_there_are_refused(plan: Command, command: Command) -> None:
    assert "defines no 'asks'" in plan("asks").err
    unnamed = command("plan", "program.py", "--model", "tiny")
    assert (unnamed.status, "FILE.py:FUNCTION" in unnamed.err) == (2, True)
    unknown = command("plan", "program.py:silent", "--model", "no-such-model")
    assert unknown.status == 1
    assert "no-such-model" in unknown.err
