"""GGUF models written as Hugging Face folders: the same model comes back from the folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.models.test_tiny_models import (
    CASES,
    folder_plan,
    logits,
    weights_of,
    write_gguf,
)

from espalier import _native
from espalier.errors import ModelFileError, UnsupportedError, UserInputError
from espalier.loaders import hf_export
from espalier.loaders.gguf import GgufFile
from espalier.loaders.hf_export import FILE_NAMES, export_hf_folder
from espalier.loaders.hf_folder import HfFolder
from espalier.loaders.model import load_model
from espalier.loaders.safetensors_writer import bfloat16_bits
from espalier.tokenizer import gguf_vocab
from espalier.tokenizer import hf_export as tokenizer_hf_export
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.tokenizer import Tokenizer

VOCAB = 61  # of the tiny models
EXPORTED = ["llama", "llama_tied_with_biases", "llama_linear", "gemma3_capped"]
TOKENS = ["<unk>", "<s>", "</s>", "a", "b", "ab", "▁", "▁a", "ba", "▁ab"]


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    """A SentencePiece vocabulary with as many tokens as the tiny models have."""
    tokens = [*TOKENS, *(chr(0x100 + index) for index in range(VOCAB - len(TOKENS)))]
    kinds = [gguf.TokenType.NORMAL] * VOCAB
    kinds[0], kinds[1], kinds[2] = (
        gguf.TokenType.UNKNOWN,
        gguf.TokenType.CONTROL,
        gguf.TokenType.CONTROL,
    )
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(index) for index in range(VOCAB)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{{ messages[0].content }}")


def tiny_gguf(case: str, tmp_path: Path) -> Path:
    """A tiny random model with a tokenizer."""
    _, hf_plan = folder_plan(case, tmp_path / "original")
    return write_gguf(tmp_path / "tiny.gguf", CASES[case]["config"], hf_plan, add_tokenizer)


def tensor_values(folder: HfFolder, name: str) -> Any:
    raw = folder.tensor(name)
    return _native.unpack(raw.type.value, raw.data, int(np.prod(raw.shape))).reshape(raw.shape)


@pytest.mark.parametrize("case", EXPORTED)
def test_exported_folder_holds_the_weights_that_the_file_was_made_of(
    case: str, tmp_path: Path
) -> None:
    made = export_hf_folder(tiny_gguf(case, tmp_path), tmp_path / "out", dtype="float32")
    folder = HfFolder(made)
    weights = weights_of(CASES[case]["config"])
    assert set(folder.tensor_shapes) == set(weights)
    for name, values in weights.items():
        # 1 + w - 1 loses the last bits of a small w.
        lost = 1e-7 if "norm" in name and case.startswith("gemma3") else 0.0
        np.testing.assert_allclose(tensor_values(folder, name), values, rtol=0, atol=lost)


@pytest.mark.parametrize("case", EXPORTED)
def test_exported_folder_computes_what_the_file_does(case: str, tmp_path: Path) -> None:
    source = load_model(tiny_gguf(case, tmp_path))
    made = load_model(export_hf_folder(source.path, tmp_path / "out", dtype="float32"))
    prompt = CASES[case]["prompt"]
    expected = logits(source.plan, source.weights, prompt)
    np.testing.assert_allclose(logits(made.plan, made.weights, prompt), expected, rtol=0, atol=2e-5)
    assert made.plan.geometry == source.plan.geometry
    assert made.chat_template_source == source.chat_template_source
    assert made.tokenizer.vocabulary.texts == source.tokenizer.vocabulary.texts
    assert made.tokenizer.eos_ids == source.tokenizer.eos_ids
    for text in ("ab ba", "  aab", "b<s>a", "ba\u0101?"):
        assert made.tokenizer.encode(text) == source.tokenizer.encode(text)
        assert made.tokenizer.decode(made.tokenizer.encode(text)) == source.tokenizer.decode(
            source.tokenizer.encode(text)
        )


def test_default_model_comes_back_whole(smollm2_path: Path, tmp_path: Path) -> None:
    made = HfFolder(export_hf_folder(smollm2_path, tmp_path / "out"))
    file = GgufFile(smollm2_path)
    raw = file.tensor("blk.7.attn_k.weight")
    stored = _native.unpack(raw.type.value, raw.data, int(np.prod(raw.shape))).reshape(raw.shape)
    found = tensor_values(made, "model.layers.7.self_attn.k_proj.weight")
    half = 32  # of a head of 64 elements
    for head in range(3):
        for pair in range(half):
            for which in range(2):
                row = stored[head * 64 + 2 * pair + which]
                moved = found[head * 64 + which * half + pair]
                assert np.array_equal(bfloat16_bits(moved), bfloat16_bits(row))
    assert len(made.tensor_shapes) == 272
    assert load_model(made.path).plan.geometry == load_model(smollm2_path).plan.geometry
    assert json.loads((made.path / "generation_config.json").read_text()) == {
        "bos_token_id": 1,
        "eos_token_id": [0, 2, 4],
        "pad_token_id": 2,
    }


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "qwen3",
            "architecture 'qwen3', which cannot be exported yet; supported are gemma3, llama",
        ),
        ("llama_yarn", "scales its rotation by YarnScaling"),
        ("llama_llama3", "scales its rotation by FrequencyFactors"),
        ("mistral_window", "an attention window of 5 positions"),
    ],
)
def test_model_that_cannot_be_written_is_refused(case: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=message):
        export_hf_folder(tiny_gguf(case, tmp_path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folder_with_files_is_kept_unless_told_otherwise(tmp_path: Path) -> None:
    source = tiny_gguf("llama", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    export_hf_folder(source, out)  # an empty folder is as good as none
    assert {path.name for path in out.iterdir()} == FILE_NAMES
    (out / "config.json").write_text("{}")
    with pytest.raises(UserInputError, match=r"is not empty, it holds \['config.json', "):
        export_hf_folder(source, out)
    assert (out / "config.json").read_text() == "{}"
    assert export_hf_folder(source, out, overwrites=True) == out
    assert load_model(out).architecture == "llama"


@pytest.mark.parametrize(
    "stale", ["chat_template.jinja", "model.safetensors.index.json", "notes.txt"]
)
def test_folder_with_files_that_no_export_writes_is_refused(stale: str, tmp_path: Path) -> None:
    source = tiny_gguf("llama", tmp_path)
    out = export_hf_folder(source, tmp_path / "out")
    (out / stale).write_text("{}")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(UserInputError, match=rf"out holds \['{stale}'\], and only"):
        export_hf_folder(source, out, overwrites=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_folder_that_appears_while_the_weights_are_written_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiny_gguf("llama", tmp_path)
    out = tmp_path / "out"

    def interfere(path: Path, *_: object) -> None:
        path.write_bytes(b"new")
        out.mkdir()
        (out / "model.safetensors").write_bytes(b"mine")

    monkeypatch.setattr(hf_export, "write_safetensors", interfere)
    with pytest.raises(UserInputError, match=r"it holds \['model.safetensors'\]"):
        export_hf_folder(source, out)
    assert [path.read_bytes() for path in out.iterdir()] == [b"mine"]


def test_bad_arguments_raise(tmp_path: Path) -> None:
    source = tiny_gguf("llama", tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserInputError, match="dtype is 'float8'; allowed are bfloat16, float32"):
        export_hf_folder(source, tmp_path / "out", dtype="float8")
    with pytest.raises(UserInputError, match=r"tiny\.gguf is a file; give a folder"):
        export_hf_folder(source, source)
    with pytest.raises(UserInputError, match=r"tiny\.gguf is a file; give a folder"):
        export_hf_folder(source, source / "out")
    with pytest.raises(ModelFileError, match="File name too long"):
        export_hf_folder(source, tmp_path / ("x" * 300))
    with pytest.raises(ModelFileError, match="File name too long"):
        export_hf_folder(tmp_path / ("x" * 300), tmp_path / "out")
    with pytest.raises(UserInputError, match="is a Hugging Face folder already"):
        export_hf_folder(tmp_path / "original", tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_tokenizer_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = []

    def build(metadata: Mapping[str, object]) -> Tokenizer:
        built.append(tokenizer_from_gguf(metadata))
        return built[-1]

    for module in (hf_export, tokenizer_hf_export, gguf_vocab):
        monkeypatch.setattr(module, "tokenizer_from_gguf", build, raising=False)
    export_hf_folder(tiny_gguf("llama", tmp_path), tmp_path / "out")
    assert len(built) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_where_writing_fails(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiny_gguf("llama", tmp_path)
    before = sorted(tmp_path.iterdir())

    def fail(path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(hf_export, "write_safetensors", fail)
    expected = ModelFileError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        export_hf_folder(source, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before


def test_large_tensor_is_the_same_in_small_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tiny_gguf("llama", tmp_path)
    export_hf_folder(source, tmp_path / "whole")
    monkeypatch.setattr(hf_export, "_BLOCK_ELEMENTS", 100)
    export_hf_folder(source, tmp_path / "blocks")
    name = "model.safetensors"
    assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "blocks" / name).read_bytes()
