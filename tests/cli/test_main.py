"""The command as a whole: help, version, wrong usage, and that it starts fast."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from espalier.cli.main import main

LIGHT = """
import sys
from espalier.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
heavy = {"numpy", "rich", "pydantic", "tokenizers", "asyncio", "jinja2", "gguf", "llguidance"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    for name in ("run", "models", "version"):
        assert f"\n  {name} " in text


def test_help_imports_nothing_heavy() -> None:
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LIGHT], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # 0.15 s where nothing else runs; the bound is wide since other tests may share the cores.
    assert time.perf_counter() - started < 3


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
def test_version_is_shown(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 0
    assert capsys.readouterr().out.startswith("espalier ")


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["models", "nonsense"], ["run"], ["run", "--nonsense", "x.py"]]
)
def test_wrong_usage_ends_with_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: espalier" in captured.err
