"""Running the command inside this process, and files for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from espalier.cli.main import main


class Ended(NamedTuple):
    """How the command ended, and what it wrote."""

    status: int
    out: str
    err: str


Command = Callable[..., Ended]


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """`command("run", "x.py")` runs `espalier run x.py` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("ESPALIER_MODEL", raising=False)
    # A script that is run changes these as Python would.
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setitem(sys.modules, "espalier_program", sys.modules["__main__"])

    def run(*arguments: str) -> Ended:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main(list(arguments))
        captured = capsys.readouterr()
        code = leaving.value.code
        return Ended(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run
