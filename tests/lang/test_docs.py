"""The blocks of the pages about the language run, one after the other, and print what they show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier.backends.scripted import ScriptedCall

DOCS = Path(__file__).parents[2] / "docs"
# A block, and the output that stands right after it, if any does.
BLOCK = re.compile(r"```python\n(.*?)```\n(?:```text\n(.*?)```)?", re.DOTALL)


def answer(call: ScriptedCall) -> Any:
    if call.kind == "score":
        return call.choices[0]
    samples = call.sampling.n if call.sampling else 1
    return [str(index + 7) for index in range(samples)]


def run_page(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Runs the blocks in one namespace and compares what each prints with what the page shows."""
    page = DOCS / name
    espalier.set_default_backend(espalier.ScriptedBackend(answer))
    namespace: dict[str, Any] = {"__name__": "page", "__file__": str(page)}
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    assert len(blocks) >= 5
    for code, shown in blocks:
        exec(compile(code, str(page), "exec"), namespace)
        printed = capsys.readouterr().out
        if shown:
            assert printed == shown
    return namespace


def test_the_blocks_of_the_page_about_the_language_run(capsys: pytest.CaptureFixture[str]) -> None:
    namespace = run_page("language.md", capsys)
    namespace["ask"](Answering())


def test_the_blocks_of_the_page_about_the_compiler_print_what_it_shows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_page("compiler.md", capsys)


class Answering:
    """Stands for an Engine in the page's last block."""

    def generate(self, prompt: str, params: dict[str, Any], stream: bool = False) -> Any:
        answer = {"text": prompt, "meta_info": {"cached_tokens": 0}}
        return [answer] if stream else answer
