"""Models of the hub, with a stand-in for the package huggingface_hub."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from espalier.errors import DownloadError, ModelNotFoundError
from espalier.loaders import hub, pull, store
from espalier.loaders.hub import HubName
from espalier.loaders.pull_progress import SilentProgress

FOLDER = {
    "config.json": b"{}",
    "tokenizer.json": b"{ }",
    "README.md": b"read me",
    "model-00001-of-00002.safetensors": b"first",
    "model-00002-of-00002.safetensors": b"second",
    "model.safetensors.index.json": b"[]",
    "onnx/model.safetensors": b"elsewhere",
    "pytorch_model.bin": b"pickle",
}


class FakeHub(ModuleType):
    """Serves one repository; `served` may differ from what is said of the files."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__("huggingface_hub")
        self.said = dict(files)
        self.served = dict(files)
        self.calls: list[dict[str, Any]] = []
        self.bars_disabled = False
        self.utils = SimpleNamespace(
            are_progress_bars_disabled=lambda: self.bars_disabled,
            disable_progress_bars=lambda: setattr(self, "bars_disabled", True),
            enable_progress_bars=lambda: setattr(self, "bars_disabled", False),
        )
        self.HfApi = lambda: self

    def model_info(self, repo_id: str, *, files_metadata: bool = False) -> SimpleNamespace:
        assert files_metadata
        if repo_id != "org/name":
            raise OSError("404: no such repository\nsecond line")
        siblings = [
            SimpleNamespace(
                rfilename=path,
                size=len(data),
                lfs={"sha256": hashlib.sha256(data).hexdigest()} if path[-1] == "s" else None,
            )
            for path, data in self.said.items()
        ]
        return SimpleNamespace(sha="c0ffee", siblings=siblings, tags=["x", "license:mit"])

    def snapshot_download(self, repo_id: str, **options: Any) -> str:
        self.calls.append({"repo": repo_id, "bars_disabled": self.bars_disabled, **options})
        folder = Path(options["local_dir"])
        (folder / ".cache" / "huggingface").mkdir(parents=True)
        for path in options["allow_patterns"]:
            if path in self.served:
                (folder / path).parent.mkdir(exist_ok=True)
                (folder / path).write_bytes(self.served[path])
        return str(folder)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(FOLDER)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "cache"))
    return fake


def pulled(name: str) -> Path:
    return pull.pull_model(name, SilentProgress())


def assert_nothing_is_left() -> None:
    assert store.list_pulled() == []
    assert not any((store.store_dir() / ".partial").glob("*"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/name", HubName("org/name", None)),
        ("Org-1/na.me_2", HubName("Org-1/na.me_2", None)),
        ("org/name:m.gguf", HubName("org/name", "m.gguf")),
        ("org/name:sub/m.gguf", HubName("org/name", "sub/m.gguf")),
        *((text, None) for text in (
            "name", "a/b/c", "./name", "../name", "~/name", "/org/name", "org/", "/name", "",
            "org/name:", "org/name:m.bin", "org/name:../m.gguf", "org/name:/m.gguf", "o rg/name",
        )),
    ],
)  # fmt: skip
def test_parse_hub_name(text: str, name: HubName | None) -> None:
    assert hub.parse_hub_name(text) == name
    if name is not None:
        assert str(name) == text


def test_pull_takes_the_folder_of_a_safetensors_model(fake: FakeHub) -> None:
    path = pulled("org/name")
    names = {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}
    assert names == set(FOLDER) - {"README.md", "onnx/model.safetensors", "pytorch_model.bin"} | {
        store.RECORD
    }
    assert (path / "model-00002-of-00002.safetensors").read_bytes() == b"second"
    found = store.find_pulled("org/name")
    assert found is not None
    assert (found.kind, found.licence, found.source) == (
        "safetensors", "mit", "hub org/name@c0ffee",
    )  # fmt: skip
    assert fake.calls[0]["revision"] == "c0ffee"
    assert fake.calls[0]["bars_disabled"]
    assert not fake.bars_disabled
    assert pulled("org/name") == path
    assert len(fake.calls) == 1


def test_pull_takes_the_only_gguf_file(fake: FakeHub) -> None:
    fake.said = fake.served = {"README.md": b"", "model.gguf": b"GGUF one"}
    path = pulled("org/name")
    assert (path.name, path.read_bytes()) == ("model.gguf", b"GGUF one")


def test_pull_takes_the_named_gguf_file(fake: FakeHub) -> None:
    fake.said = fake.served = {"a.gguf": b"GGUF a", "sub/b.gguf": b"GGUF b"}
    with pytest.raises(ModelNotFoundError, match=r"choose one of org/name:a\.gguf, org/name:sub/b"):
        pulled("org/name")
    with pytest.raises(ModelNotFoundError, match=r"has no file c\.gguf; choose one of"):
        pulled("org/name:c.gguf")
    assert pulled("org/name:sub/b.gguf").read_bytes() == b"GGUF b"
    assert pulled("org/name:a.gguf").read_bytes() == b"GGUF a"
    assert [model.name for model in store.list_pulled()] == [
        "org/name:a.gguf",
        "org/name:sub/b.gguf",
    ]


def test_pull_refuses_a_repository_without_a_model(fake: FakeHub) -> None:
    fake.said = {"README.md": b""}
    with pytest.raises(ModelNotFoundError, match=r"it has no \.gguf file"):
        pulled("org/name")
    assert_nothing_is_left()


@pytest.mark.parametrize(
    ("path", "data", "message"),
    [
        ("config.json", b"{", "1 bytes, 2 were expected"),
        ("model-00001-of-00002.safetensors", b"FIRST", "sha256"),
        ("tokenizer.json", None, "did not arrive"),
    ],
)
def test_pull_refuses_files_that_differ(
    fake: FakeHub, path: str, data: bytes | None, message: str
) -> None:
    if data is None:
        del fake.served[path]
    else:
        fake.served[path] = data
    with pytest.raises(DownloadError, match=message):
        pulled("org/name")
    assert_nothing_is_left()


@pytest.mark.usefixtures("fake")
def test_pull_chains_the_error_of_the_hub() -> None:
    with pytest.raises(
        DownloadError, match=r"other/name could not.*404: no such repository"
    ) as info:
        pulled("other/name")
    assert isinstance(info.value.__cause__, OSError)
    assert_nothing_is_left()


def test_pull_names_the_extra_where_the_package_is_absent(
    fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DownloadError, match=r"pip install 'espalier-lm\[hub\]'"):
        pulled("org/name")
    assert fake.calls == []
