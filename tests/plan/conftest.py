"""Models that plans are made for: a tiny one, made on the spot, and the default one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tiny_folder import write_tiny_folder

from espalier.plan.model import PlannedModel, load_planned_model


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_folder(tmp_path_factory.mktemp("planned") / "tiny")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> PlannedModel:
    """A model with one token for each byte."""
    return load_planned_model(tiny_folder)


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> PlannedModel:
    return load_planned_model(smollm2_path)
