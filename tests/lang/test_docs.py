"""The blocks of the pages about the language run, one after the other, in one namespace each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier.backends.scripted import ScriptedCall

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_every_block_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    def answer(call: ScriptedCall) -> Any:
        if call.kind == "score":
            return call.choices[0]
        samples = call.sampling.n if call.sampling else 1
        return [str(index + 7) for index in range(samples)]

    espalier.set_default_backend(espalier.ScriptedBackend(answer))
    namespace: dict[str, Any] = {"__name__": "page"}
    assert len(BLOCKS) >= 10
    for block in BLOCKS:
        exec(compile(block, str(PAGE), "exec"), namespace)
    printed = capsys.readouterr().out
    assert "no network" in printed
    namespace["ask"](Answering())


def test_seeing_a_run_draws_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.with_name("seeing-a-run.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "page"}
    exec(compile(block, "seeing-a-run.md", "exec"), namespace)
    assert capsys.readouterr().out == "2 runs\n"
    assert namespace["state"]["tip"] == [" drink it hot."] * 2
    for name, bars in (("run.html", 4), ("batch.html", 8)):
        assert (tmp_path / name).read_text(encoding="utf-8").count('class="bar"') == bars


class Answering:
    """Stands for an Engine in the page's last block."""

    def generate(self, prompt: str, params: dict[str, Any], stream: bool = False) -> Any:
        answer = {"text": prompt, "meta_info": {"cached_tokens": 0}}
        return [answer] if stream else answer
