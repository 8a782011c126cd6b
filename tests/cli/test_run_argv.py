"""Which words are the script's."""

from __future__ import annotations

from pathlib import Path

import pytest

from espalier.cli.failure import UsageError
from espalier.cli.run_argv import RunTarget, parse_target, split_run_argv
from espalier.errors import UserInputError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("run x.py", "run -- x.py"),
        ("run x.py a b", "run -- x.py a b"),
        ("run x.py --model m --help", "run -- x.py --model m --help"),
        ("run --model m --threads 2 x.py -v y.py", "run --model m --threads 2 -- x.py -v y.py"),
        ("run --report=r.py x.py --", "run --report=r.py -- x.py --"),
        ("run d/x.py:f --input {} --seed 1", "run --input {} --seed 1 -- d/x.py:f"),
        ("run --seed 1 x.py:f --input {}", "run --seed 1 --input {} -- x.py:f"),
        ("run -- x.py a", "run -- x.py a"),
        ("run", "run"),
        ("run --help", "run --help"),
        ("run folder", "run folder"),
        ("models list x.py", "models list x.py"),
        ("", ""),
    ],
)
def test_split_puts_options_first(given: str, expected: str) -> None:
    assert split_run_argv(given.split()) == expected.split()


def test_parse_target_finds_file_and_function(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.touch()
    assert parse_target(str(file)) == RunTarget(file, None)
    assert parse_target(f"{file}:main") == RunTarget(file, "main")


@pytest.mark.parametrize("text", ["x", "x.txt", "x.py:", "x.py:1a", "x.py:a.b", ".py"])
def test_parse_target_refuses_other_text(text: str) -> None:
    with pytest.raises(UsageError):
        parse_target(text)


def test_parse_target_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="no file"):
        parse_target(str(tmp_path / "x.py"))
