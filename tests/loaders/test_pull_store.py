"""The store's listing and removal, with models put there by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from espalier.errors import ModelNotFoundError, UserInputError
from espalier.loaders import store
from espalier.loaders.pull_progress import SilentProgress


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def put(name: str, content: bytes = b"GGUF") -> Path:
    with store.scratch_folder(name) as folder:
        ready = folder / "ready"
        ready.mkdir()
        (ready / "model.gguf").write_bytes(content)
        return store.publish(
            ready, name, kind="gguf", file_name="model.gguf", licence="MIT", source="test"
        )


def remove(name: str) -> store.PulledModel:
    return store.remove_pulled(name, SilentProgress())


def test_list_is_empty_without_a_store() -> None:
    assert store.list_pulled() == []
    assert store.find_pulled("smollm2") is None


@pytest.mark.parametrize(
    "name", ["tiny", "org/name", "org/name:sub/file.gguf", "a--b/c", "a/b--c", ".."]
)
def test_find_returns_what_was_published_whatever_its_name(name: str) -> None:
    path = put(name)
    put("other")
    found = store.find_pulled(name)
    assert found is not None
    assert (found.name, found.path, found.num_bytes) == (name, path, 4)
    assert path.parent.parent == store.store_dir()
    assert [model.name for model in store.list_pulled()] == sorted(
        [name, "other"], key=store._quoted
    )


def test_list_shows_broken_models_and_find_does_not() -> None:
    put("cut").write_bytes(b"GG")
    put("gone").unlink()
    (put("noted").parent / store.RECORD).write_text("{}")
    put("whole")
    listed = {model.name: (model.kind, model.problem) for model in store.list_pulled()}
    assert listed["whole"] == ("gguf", None)
    assert listed["cut"] == ("broken", "2 bytes are there, 4 were pulled")
    assert listed["gone"] == ("broken", "0 bytes are there, 4 were pulled")
    assert listed["noted"][0] == "broken"
    assert [name for name in listed if store.find_pulled(name)] == ["whole"]


def test_remove_takes_a_name_or_a_path_of_its_files() -> None:
    paths = [put("one"), put("two").parent, put("org/three")]
    assert remove("one").name == "one"
    assert remove(str(paths[1])).name == "two"
    assert remove(str(paths[2])).name == "org/three"
    assert not any(path.exists() for path in paths)
    assert store.list_pulled() == []
    assert not list(store.store_dir().glob(".trash*"))


def test_remove_takes_a_broken_model() -> None:
    put("cut").write_bytes(b"GG")
    assert remove("cut").problem is not None
    assert store.list_pulled() == []


def test_remove_refuses_what_is_not_there() -> None:
    with pytest.raises(ModelNotFoundError, match="espalier models list"):
        remove("smollm2")


def test_remove_refuses_paths_outside_the_store(tmp_path: Path) -> None:
    put("tiny")
    outside = tmp_path / "mine.gguf"
    outside.write_text("mine")
    escape = store.store_dir() / "tiny" / ".." / ".." / ".." / "mine.gguf"
    for path in (outside, escape, store.store_dir(), store.store_dir() / ".locks", "/", "~", "."):
        with pytest.raises(UserInputError):
            remove(str(path))
    assert outside.exists()
    assert store.find_pulled("tiny") is not None


def test_remove_refuses_a_link_out_of_the_store(tmp_path: Path) -> None:
    outside = tmp_path / "folder"
    outside.mkdir()
    store.store_dir().mkdir(parents=True)
    (store.store_dir() / "tiny").symlink_to(outside)
    with pytest.raises(UserInputError, match="outside"):
        remove(str(store.store_dir() / "tiny"))
    assert outside.is_dir()


def test_publish_replaces_a_broken_predecessor() -> None:
    put("tiny").write_bytes(b"G")
    assert put("tiny", b"GGUF whole").read_bytes() == b"GGUF whole"
