"""Loading the example scripts as modules."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from espalier.lang.config import set_default_backend

EXAMPLES = Path(__file__).parents[2] / "examples"
LoadExample = Callable[[str], ModuleType]


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example() -> Iterator[LoadExample]:
    """`example("quickstart")` is the module; the default backend is taken back at the end."""
    yield load
    set_default_backend(None)
