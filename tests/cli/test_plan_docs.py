"""The commands of docs/plan.md print what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from .conftest import Command

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plan.md"
# A command, and its output up to the end of the block.
RUN = re.compile(r"\$ espalier (plan .*)\n((?:(?!```).*\n)*)(?=```)")


def test_the_page_shows_what_its_commands_print(
    command: Command,
    tmp_path: Path,
    smollm2_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    update_expected: bool,
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    (rows,) = re.findall(r"\$ cat facts.jsonl\n((?:\{.*\n)+)", text)
    (tmp_path / "facts.jsonl").write_text(rows, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "smollm2").symlink_to(smollm2_path)  # the name that the page shows
    monkeypatch.setenv("ESPALIER_MODEL", "./smollm2")
    found = list(RUN.finditer(text))
    assert len(found) == 3
    for match in reversed(found):
        ended = command(*shlex.split(match[1]))
        assert (ended.status, ended.err) == (0, "")
        if update_expected:
            text = text[: match.start(2)] + ended.out + text[match.end(2) :]
        else:
            assert ended.out == match[2]
    if update_expected:
        PAGE.write_text(text, encoding="utf-8")
