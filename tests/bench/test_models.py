"""Where environments and exported folders lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.peers.catalog import default_folder
from bench.peers.models import exported_name


def test_files_of_one_name_are_exported_to_folders_of_their_own(tmp_path: Path) -> None:
    files = [tmp_path / name / "model.gguf" for name in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        file.write_bytes(b"weights")
        os.utime(file, ns=(10**18, 10**18))
    first, second = map(exported_name, files)
    assert first.startswith("model-")
    assert first == exported_name(files[0])
    assert first != second
    os.utime(files[0], ns=(10**18, 10**18 + 1))
    changed = exported_name(files[0])
    files[0].write_bytes(b"other weights")
    os.utime(files[0], ns=(10**18, 10**18))
    assert len({first, changed, exported_name(files[0])}) == 3


def test_link_to_a_file_is_that_file(tmp_path: Path) -> None:
    file, link = tmp_path / "model.gguf", tmp_path / "link" / "model.gguf"
    file.write_bytes(b"weights")
    link.parent.mkdir()
    link.symlink_to(file)
    assert exported_name(link) == exported_name(file)


def test_environments_lie_beside_the_models_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ESPALIER_BENCH_PEERS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "espalier-bench-peers"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_folder() == Path.home() / ".cache" / "espalier-bench-peers"
    monkeypatch.setenv("ESPALIER_BENCH_PEERS", str(tmp_path / "mine"))
    assert default_folder() == tmp_path / "mine"
