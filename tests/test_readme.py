"""The README's programs run and print what it says; its links and commands lead somewhere."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

import espalier

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", README, re.DOTALL)


def test_readme_has_programs_with_output() -> None:
    assert len(PROGRAMS) == 2
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize("index", range(2))
def test_program_prints_what_the_readme_says(
    index: int, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, expected = PROGRAMS[index]
    engine_of = espalier.Engine
    # The alias would look for a pulled file; the fixture knows where the file is.
    monkeypatch.setattr(espalier, "Engine", lambda _: engine_of(smollm2_path))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "README.md", "exec"), {"__name__": "readme"})
    assert printed.getvalue() == expected


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / target).exists(), target
