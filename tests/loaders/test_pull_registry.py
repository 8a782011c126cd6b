"""The registry's entries are whole, and the default model's file is the one that it names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from espalier import settings
from espalier.loaders.wheel import file_sha256
from espalier.models.registry import REGISTRY, RegistryEntry


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=list(REGISTRY))
def test_entry_is_exact(entry: RegistryEntry) -> None:
    assert REGISTRY[entry.alias] is entry
    assert entry.file_name.endswith(".gguf")
    assert entry.licence
    digests = [entry.sha256, *(part.wheel_sha256 for part in entry.parts)]
    assert len(set(digests)) == len(digests)
    for digest in digests:
        assert re.fullmatch("[0-9a-f]{64}", digest)
    for part in entry.parts:
        assert re.fullmatch(r"\d+(\.\d+)+", part.version)
        assert part.member.startswith(part.project.replace("-", "_") + "/")
    assert 0.5 * entry.num_bytes < entry.download_bytes < 1.5 * entry.num_bytes


def test_default_model_is_an_alias() -> None:
    assert settings.DEFAULT_MODEL in REGISTRY


def test_default_model_file_has_the_digest_of_its_entry(smollm2_path: Path) -> None:
    entry = REGISTRY["smollm2"]
    assert smollm2_path.stat().st_size == entry.num_bytes
    assert file_sha256(smollm2_path) == entry.sha256


def test_second_model_file_has_the_digest_of_its_entry(gemma3_path: Path) -> None:
    entry = REGISTRY["gemma3-270m"]
    assert gemma3_path.stat().st_size == entry.num_bytes
    assert file_sha256(gemma3_path) == entry.sha256
