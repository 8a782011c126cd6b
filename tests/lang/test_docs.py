"""The blocks of the pages about the language run, one after the other, and print what they show."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier.backends.scripted import ScriptedCall

PageRunner = Callable[[str], dict[str, Any]]
DOCS = Path(__file__).parents[2] / "docs"
# A block, and the output that stands right after it, if any does.
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", re.DOTALL)


def answer(call: ScriptedCall) -> Any:
    if call.kind == "score":
        return call.choices[0]
    samples = call.sampling.n if call.sampling else 1
    return [str(index + 7) for index in range(samples)]


@pytest.fixture
def page_runner(capsys: pytest.CaptureFixture[str], update_expected: bool) -> PageRunner:
    return lambda name: run_page(name, capsys, update=update_expected)


def run_page(name: str, capsys: pytest.CaptureFixture[str], *, update: bool) -> dict[str, Any]:
    """Runs the blocks in one namespace and compares what each prints with what the page shows.

    With `update`, the page gets what is printed. The default backend is the caller's.
    """
    page = DOCS / name
    namespace: dict[str, Any] = {"__name__": "page", "__file__": str(page)}
    text = page.read_text(encoding="utf-8")
    blocks = list(BLOCK.finditer(text))
    assert len(blocks) >= 5
    for block in reversed([run_block(block, page, namespace, capsys) for block in blocks]):
        start, end, shown, printed = block
        if update:
            text = text[:start] + printed + text[end:]
        else:
            assert printed == shown
    if update:
        page.write_text(text, encoding="utf-8")
    return namespace


def run_block(
    block: re.Match[str], page: Path, namespace: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> tuple[int, int, str, str]:
    """Runs one block: where its output stands in the page, what it is there, what it is."""
    exec(compile(block[1], str(page), "exec"), namespace)
    printed = capsys.readouterr().out
    if block[2] is None:  # no output is shown
        return block.end(), block.end(), "", ""
    return block.start(2), block.end(2), block[2], printed


def test_the_page_about_the_language_shows_what_the_default_model_answers(
    page_runner: PageRunner, smollm2_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with espalier.Engine(smollm2_path, max_total_tokens=4096) as engine:
        espalier.set_default_backend(engine)
        namespace = page_runner("language.md")
        namespace["ask"](engine)
    assert capsys.readouterr().out.count("\n") >= 8


def test_the_blocks_of_the_page_about_the_compiler_print_what_it_shows(
    page_runner: PageRunner,
) -> None:
    espalier.set_default_backend(espalier.ScriptedBackend(answer))
    page_runner("compiler.md")


def test_seeing_a_run_draws_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "seeing-a-run.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "seeing-a-run.md", "exec"), namespace)
    assert capsys.readouterr().out == "2 runs\n"
    assert namespace["state"]["tip"] == [" drink it hot."] * 2
    for name, bars in (("run.html", 4), ("batch.html", 8)):
        assert (tmp_path / name).read_text(encoding="utf-8").count('class="bar"') == bars
