"""From a name or path to a model on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from espalier.errors import ModelFileError, ModelNotFoundError
from espalier.loaders import resolve, store
from espalier.loaders.hub import HubName
from espalier.loaders.pull_progress import PullProgress, SilentProgress
from espalier.loaders.resolve import resolve_model
from espalier.models.registry import REGISTRY, RegistryEntry


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, an empty cache, and pulls that only say what they would do."""
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("ESPALIER_MODEL", raising=False)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def pull_entry(entry: RegistryEntry, progress: PullProgress) -> Path:
        return Path("pulled") / entry.alias

    def pull_from_hub(name: HubName, progress: PullProgress) -> Path:
        return Path("hub") / str(name)

    monkeypatch.setattr(resolve, "pull_entry", pull_entry)
    monkeypatch.setattr(resolve, "pull_from_hub", pull_from_hub)
    return folder


def resolved(name: str | Path | None) -> Path:
    return resolve_model(name, progress=SilentProgress())


def put(name: str, num_bytes: int) -> Path:
    with store.scratch_folder(name) as folder:
        ready = folder / "ready"
        ready.mkdir()
        with open(ready / "model.gguf", "wb") as file:
            file.truncate(num_bytes)
        return store.publish(
            ready, name, kind="gguf", file_name="model.gguf", licence="MIT", source="test"
        )


def test_none_means_the_default_model(monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolved(None) == Path("pulled/smollm2")
    monkeypatch.setenv("ESPALIER_MODEL", "gemma3-270m")
    assert resolved(None) == Path("pulled/gemma3-270m")


def test_alias_is_not_pulled_where_it_is_there() -> None:
    path = put("smollm2", REGISTRY["smollm2"].num_bytes)
    assert resolved("smollm2") == path
    put("smollm2", 5)
    assert resolved("smollm2") == Path("pulled/smollm2")


def test_alias_wins_over_a_path_of_that_name(here: Path) -> None:
    (here / "smollm2").mkdir()
    (here / "smollm2" / "config.json").write_text("{}")
    assert resolved("smollm2") == Path("pulled/smollm2")
    assert resolved("./smollm2") == Path("smollm2")
    assert resolved(Path("smollm2")) == Path("smollm2")


def test_path_of_a_file_or_folder_is_taken(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "m.gguf").write_bytes(b"GGUF")
    (here / "org" / "name").mkdir(parents=True)
    (here / "org" / "name" / "config.json").write_text("{}")
    assert resolved("m.gguf") == Path("m.gguf")
    assert resolved(here / "m.gguf") == here / "m.gguf"
    assert resolved("org/name") == Path("org/name")
    monkeypatch.setenv("HOME", str(here))
    assert resolved("~/m.gguf") == here / "m.gguf"


def test_folder_with_one_gguf_file_means_that_file(here: Path) -> None:
    folder = here / "models"
    folder.mkdir()
    with pytest.raises(ModelFileError, match=r"neither a config\.json"):
        resolved("models")
    (folder / "a.gguf").write_bytes(b"GGUF")
    assert resolved("models") == Path("models/a.gguf")
    (folder / "b.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelFileError, match=r"several models \(a\.gguf, b\.gguf\)"):
        resolved("models")


def test_hub_name_is_pulled_unless_it_is_there() -> None:
    assert resolved("org/name") == Path("hub/org/name")
    assert resolved("org/name:m.gguf") == Path("hub/org/name:m.gguf")
    path = put("org/name", 4)
    assert resolved("org/name") == path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smolm2", "Did you mean smollm2"),
        ("gemma", "Did you mean gemma3-270m"),
        ("qwxz", "no model is called 'qwxz'. Allowed are an alias"),
        ("", "no model is called ''"),
        ("~no-such-user/m", "no file or folder ~no-such-user/m"),
        ("a" * 5000, "no model is called"),
        ("missing.gguf", "no file or folder missing.gguf"),
        ("./org/name", "no file or folder org/name"),
        ("a/b/c", "no file or folder a/b/c"),
        (Path("smollm3"), "no file or folder smollm3"),
    ],
)
def test_unknown_name_raises(name: str | Path, message: str) -> None:
    with pytest.raises(ModelNotFoundError) as info:
        resolved(name)
    assert message in str(info.value)


def test_weights_without_their_folder_raise(here: Path) -> None:
    (here / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(ModelFileError, match="give the folder"):
        resolved("model.safetensors")


def test_empty_file_raises(here: Path) -> None:
    (here / "m.gguf").touch()
    with pytest.raises(ModelFileError, match="is empty"):
        resolved("m.gguf")


@pytest.mark.parametrize("given", [5, b"smollm2", ["smollm2"]])
def test_what_is_no_name_is_refused(given: object) -> None:
    with pytest.raises(ModelNotFoundError, match="a name or a path is allowed"):
        resolve_model(given)  # type: ignore[arg-type]
