"""`espalier models`, with models put into the store by hand or pulled from a folder of wheels."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import pytest
from tests.loaders.test_hf_export import tiny_gguf

from espalier.loaders import pull, store
from espalier.loaders.model import load_model
from espalier.loaders.wheel import file_sha256
from espalier.models.registry import RegistryEntry, WheelPart

from .conftest import Command


def put(name: str, content: bytes = b"GGUF", licence: str = "MIT") -> Path:
    with store.scratch_folder(name) as folder:
        ready = folder / "ready"
        ready.mkdir()
        (ready / "model.gguf").write_bytes(content)
        return store.publish(
            ready, name, kind="gguf", file_name="model.gguf", licence=licence, source="test"
        )


def tiny_entry(folder: Path) -> RegistryEntry:
    made = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("tiny/tiny.gguf", b"GGUF tiny")
        archive.writestr(
            "tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    part = WheelPart("tiny", "1.0", file_sha256(made), made.stat().st_size, "tiny/tiny.gguf")
    digest = hashlib.sha256(b"GGUF tiny").hexdigest()
    return RegistryEntry("tiny", "Tiny", "tiny.gguf", 9, digest, (part,), "CC0")


def test_pull_list_path_and_rm_go_together(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull, "REGISTRY", {"tiny": tiny_entry(tmp_path)})
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    pulled = command("models", "pull", "tiny")
    path = store.store_dir() / "tiny" / "tiny.gguf"
    assert pulled.status == 0
    assert pulled.out == f"{path}\n"
    assert pulled.err == (
        f"Pulling tiny (Tiny, 0 MB, licence CC0) into {store.store_dir()}; this happens once.\n"
    )
    assert command("models", "path", "tiny") == (0, f"{path}\n", "")
    listed = command("models", "list")
    assert listed.out.splitlines()[1].split()[:2] == ["tiny", "gguf"]
    assert str(path) in listed.out
    assert command("models", "rm", "tiny").out == "Removed tiny (0.0 MB).\n"
    assert command("models", "path", "tiny").status == 1
    assert not path.exists()


def test_pull_of_an_unknown_name_fails_in_one_line(command: Command) -> None:
    ended = command("models", "pull", "smolm2")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("espalier: no model is called 'smolm2'. Did you mean smollm2?")
    assert ended.err.count("\n") == 1


def test_list_shows_models_and_what_could_be_pulled(command: Command) -> None:
    put("smollm2", b"GGUF" * 300_000, "Apache-2.0")
    put("org/name").write_bytes(b"cut")
    ended = command("models", "list")
    header, *rows = ended.out.splitlines()
    assert header.split() == ["NAME", "KIND", "SIZE", "PULLED", "LICENCE", "PATH"]
    assert rows[0].startswith("org/name")
    assert "broken: 3 bytes are there, 4 were pulled" in rows[0]
    assert rows[1].split()[:4] == ["smollm2", "gguf", "1.2", "MB"]
    assert "Apache-2.0" in rows[1]
    assert ended.err.startswith("Not pulled: gemma3-270m (Gemma 3 270M, Q4_K_M, 238 MB")


def test_list_without_models_prints_nothing_on_stdout(command: Command) -> None:
    ended = command("models", "list")
    assert (ended.status, ended.out) == (0, "")
    assert "Not pulled: smollm2" in ended.err


def test_list_prints_json(command: Command) -> None:
    path = put("org/name")
    (listed,) = json.loads(command("models", "list", "--json").out)
    assert listed["name"] == "org/name"
    assert listed["path"] == str(path)
    assert listed["problem"] is None


def test_path_of_the_default_model(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = command("models", "path")
    assert ended.status == 1
    assert "espalier models pull smollm2" in ended.err
    path = put("org/name")
    monkeypatch.setenv("ESPALIER_MODEL", "org/name")
    assert command("models", "path").out == f"{path}\n"


def test_rm_refuses_a_path_outside_the_cache(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.gguf"
    file.touch()
    ended = command("models", "rm", str(file))
    assert ended.status == 1
    assert "outside the model cache" in ended.err
    assert file.exists()


def test_export_writes_a_folder_and_prints_its_path(command: Command, tmp_path: Path) -> None:
    source = tiny_gguf("llama", tmp_path)
    made = command("models", "export", str(source), "--output", "out", "--dtype", "float32")
    assert made == (0, "out\n", "")
    assert load_model(tmp_path / "out").architecture == "llama"
    again = command("models", "export", str(source), "--output", "out")
    assert again.status == 1
    assert again.err == (
        "espalier: out is not empty, it holds ['config.json', 'generation_config.json', "
        "'model.safetensors', 'tokenizer.json', 'tokenizer_config.json']; give another folder, or "
        "replace an earlier export by --overwrite.\n"
    )
    assert command("models", "export", str(source), "-o", "out", "--overwrite").status == 0
    (tmp_path / "out" / "notes.txt").touch()
    refused = command("models", "export", str(source), "-o", "out", "--overwrite")
    assert refused == (
        1,
        "",
        "espalier: out holds ['notes.txt'], and only a folder of nothing but exported files is "
        "overwritten; move the rest away or give another folder.\n",
    )


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("x" * 300, "cannot be written: File name too long."),
        ("tiny.gguf/out", "tiny.gguf is a file; give a folder."),
        (".", ". is the current folder or that of a mounted disk"),
    ],
)
def test_export_to_an_impossible_place_fails_in_one_line(
    output: str, reason: str, command: Command, tmp_path: Path
) -> None:
    ended = command("models", "export", str(tiny_gguf("llama", tmp_path)), "-o", output)
    assert (ended.status, ended.out) == (1, "")
    assert reason in ended.err
    assert ended.err.count("\n") == 1


def test_export_to_another_format_is_wrong_usage(command: Command, tmp_path: Path) -> None:
    ended = command("models", "export", "x.gguf", "--format", "onnx", "--output", "out")
    assert ended == (2, "", "espalier: --format is 'onnx'; allowed is hf. See --help.\n")
