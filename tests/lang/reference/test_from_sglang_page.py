"""The blocks of docs/from-sglang.md run, one after the other, in one namespace."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "from-sglang.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_every_block_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    blocks = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
    assert capsys.readouterr().out == "WORLD ASSISTANT:\n"


def test_the_names_in_its_table_are_there() -> None:
    listed = re.findall(r"^\| `(espalier[\w.]*)` \| (.*) \|$", TEXT, re.MULTILINE)
    assert len(listed) == 8
    for module, names in listed:
        found = importlib.import_module(module)
        for name in re.findall(r"`(\w+)`", names):
            assert hasattr(found, name), (module, name)


def test_the_page_is_linked_from_where_readers_start() -> None:
    root = PAGE.parents[1]
    assert "docs/from-sglang.md" in (root / "README.md").read_text(encoding="utf-8")
    assert "from-sglang.md" in (root / "docs" / "language.md").read_text(encoding="utf-8")
