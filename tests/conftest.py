"""Fixtures that all tests share: real models and public data, where they are present."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from espalier import settings

# A shell that starts the tests in the background has them ignore ^C, and so would every process
# that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update` has tests write what they expect anew, where that is a committed file."""
    parser.addoption("--update", action="store_true", help="write committed expectations anew")


@pytest.fixture
def update_expected(request: pytest.FixtureRequest) -> bool:
    """Expectations are to be written anew."""
    return bool(request.config.getoption("--update"))


def _model_path(variable: str, alias: str, file_name: str) -> Path:
    """The file that an environment variable names, else the pulled one; skips without either."""
    given = os.environ.get(variable)
    if given:
        path = Path(given)
        assert path.is_file(), f"{variable} names {given}, which is not a file"
        return path
    found = sorted((settings.cache_dir() / "models").rglob(file_name))
    if not found:
        pytest.skip(f"needs the model {alias}: run `espalier models pull {alias}`")
    return found[0]


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model's file."""
    return _model_path("ESPALIER_TEST_SMOLLM2", "smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """The second model's file."""
    return _model_path("ESPALIER_TEST_GEMMA3", "gemma3-270m", "gemma-3-270m-q4_k_m.gguf")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of public test data, which users of a checkout do not have."""
    given = os.environ.get("ESPALIER_TEST_DATA")
    path = Path(given) if given else Path(__file__).parents[2] / "shared" / "data"
    if not path.is_dir():
        pytest.skip("needs the public test data: set ESPALIER_TEST_DATA to its folder")
    return path
