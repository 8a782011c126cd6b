"""`espalier run --trace FILE.html`: a drawing, whatever became of the run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .conftest import Command

SCRIPT = """
import asyncio
from espalier.backends.scripted import ScriptedBackend
from espalier.lang.api import gen
from espalier.lang.config import set_default_backend
from espalier.lang.function import function

set_default_backend(ScriptedBackend({"capital": "Paris", "fail": RuntimeError("down")}))

@function
def ask(s, question):
    s += question + gen("answer")

@function
def stops(s):
    s += "capital" + gen("answer")
    s.sync()
    raise KeyboardInterrupt

@function
async def later(s):
    s += "capital" + gen("answer")
    await s.aget("answer")

if __name__ == "__main__":
    ask.run("capital")
    asyncio.run(later.arun())
    ask.run("fail").sync()
"""


@pytest.fixture
def page(tmp_path: Path, command: Command) -> Path:
    """Where the drawing goes, beside the programs."""
    (tmp_path / "p.py").write_text(SCRIPT)
    return tmp_path / "run.html"


def test_one_program_is_drawn(command: Command, page: Path) -> None:
    ended = command("run", "p.py:ask", "--input", '["capital"]', "--trace", "run.html")
    assert ended.status == 0, ended.err
    html = page.read_text(encoding="utf-8")
    assert "<h1>ask(&#x27;capital&#x27;)</h1>" in html
    assert html.count('class="bar"') == 1
    assert "p.py:12" in html


def test_a_script_is_drawn_with_all_that_it_ran_also_where_it_failed(
    command: Command, page: Path
) -> None:
    ended = command("run", "--trace", "run.html", "p.py")
    assert ended.status == 1
    html = page.read_text(encoding="utf-8")
    assert "<h1>3 runs of ask, later</h1>" in html
    assert html.count('class="bar"') == 3
    assert re.search(
        r'<span class="failed failed"[^>]*>gen &#x27;answer&#x27; failed: Runtime', html
    )


def test_an_interrupted_run_is_drawn(command: Command, page: Path) -> None:
    ended = command("run", "p.py:stops", "--trace", "run.html")
    assert ended.status == 130
    html = page.read_text(encoding="utf-8")
    assert "stops(): KeyboardInterrupt" in html
    assert '<span class="o-generated">Paris</span>' in html


def test_of_a_batch_the_first_hundred_rows_are_drawn(
    command: Command, page: Path, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_text('["capital"]\n' * 103)
    ended = command("run", "p.py:ask", "--batch", "in.jsonl", "--out", "o", "--trace", "run.html")
    assert ended.status == 0, ended.err
    html = page.read_text(encoding="utf-8")
    assert html.count('class="bar"') == 100
    assert "The first 100 runs are drawn; 3 more runs ran and were not recorded." in html


def test_a_drawing_that_cannot_be_written_stops_the_command_before_it_starts(
    command: Command, page: Path
) -> None:
    ended = command("run", "--trace", "no/such/run.html", "p.py")
    assert ended.status == 1
    assert ended.err == (
        "espalier: --trace no/such/run.html cannot be written: give a file in a folder that is.\n"
    )
