"""The package carries its types, and a typed program of a user checks and runs."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import pytest
from tests.lang import typed_program

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.constraint import ConstraintKind
from espalier.errors import UserInputError

ROOT = Path(__file__).parents[2]


def test_the_package_says_that_it_is_typed() -> None:
    assert (importlib.resources.files("espalier") / "py.typed").is_file()
    # The wheel takes the package's folder as it is: nothing of it is left out.
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'wheel.packages = ["src/espalier"]' in settings
    assert "wheel.exclude" not in settings
    assert (ROOT / "src" / "espalier" / "_native.pyi").is_file()


def answer(call: ScriptedCall) -> str | list[str]:
    if call.kind == "score":
        return "large"
    if call.sampling is not None and call.sampling.n == 2:
        return ["a", "b"]
    is_json = call.constraint is not None and call.constraint.kind is ConstraintKind.JSON_SCHEMA
    return '{"name":"Lima","inhabitants":10092000}' if is_json else "12"


def test_the_typed_program_runs() -> None:
    text, usage = typed_program.use(ScriptedBackend(answer))
    assert "Lima" in text
    assert usage.calls == 7


def test_what_a_checker_refuses_is_refused_when_run() -> None:
    with pytest.raises((TypeError, UserInputError)):
        typed_program.what_is_refused()
