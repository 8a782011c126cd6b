"""Whole models from a path: real files, a small folder, and what is refused."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as LibraryTokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from espalier.errors import ChatTemplateError, ModelFileError, UnsupportedError
from espalier.exec.executor import ExecutorOptions, StepBatch
from espalier.exec.reference import ReferenceExecutor
from espalier.loaders.model import load_model

CONFIG = {
    "model_type": "llama",
    "vocab_size": 5,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 16,
    "tie_word_embeddings": True,
}
LAYER = {
    "self_attn.q_proj": (4, 4),
    "self_attn.k_proj": (4, 4),
    "self_attn.v_proj": (4, 4),
    "self_attn.o_proj": (4, 4),
    "mlp.gate_proj": (6, 4),
    "mlp.up_proj": (6, 4),
    "mlp.down_proj": (4, 6),
    "input_layernorm": (4,),
    "post_attention_layernorm": (4,),
}
SHAPES: dict[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (5, 4),
    "model.norm.weight": (4,),
    **{f"model.layers.0.{name}.weight": shape for name, shape in LAYER.items()},
}


def write_folder(path: Path, tokens: str = "abcd", **config: Any) -> Path:
    """A model folder with one layer whose vocabulary is the letters of `tokens`."""
    path.mkdir()
    header, data = {}, b""
    random = np.random.default_rng(0)
    for name, shape in SHAPES.items():
        part = random.normal(size=shape).astype(np.float16).tobytes()
        end = len(data) + len(part)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [len(data), end]}
        data += part
    text = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (path / "config.json").write_text(json.dumps({**CONFIG, **config}))
    vocabulary = {letter: index for index, letter in enumerate(tokens)}
    tokenizer = LibraryTokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.save(str(path / "tokenizer.json"))
    return path


def test_default_model_loads_whole(smollm2_path: Path) -> None:
    model = load_model(smollm2_path, name="smollm2")
    geometry = model.plan.geometry
    assert (model.name, model.architecture) == ("smollm2", "llama")
    assert (geometry.num_layers, geometry.hidden_size, geometry.max_context) == (30, 576, 8192)
    assert (geometry.num_heads, geometry.num_kv_heads, geometry.head_dim) == (9, 3, 64)
    assert geometry.vocab_size == model.tokenizer.vocab_size == 49152
    assert model.tokenizer.decode(model.tokenizer.encode("A plan.")) == "A plan."
    assert model.chat_template_source is not None
    assert "<|im_start|>user\n" in model.role_template().opening("user", [])
    for slot in model.plan.weights:
        assert model.weights.tensor(slot.tensor).shape == slot.shape


def test_second_model_loads_whole(gemma3_path: Path) -> None:
    model = load_model(gemma3_path)
    geometry = model.plan.geometry
    assert (model.name, model.architecture) == (gemma3_path.stem, "gemma3")
    assert (geometry.num_layers, geometry.hidden_size, geometry.head_dim) == (18, 640, 256)
    assert geometry.vocab_size == model.tokenizer.vocab_size == 262_144
    assert [rope.inv_freq[1] for rope in model.plan.ropes] == pytest.approx(
        [1e4 ** (-1 / 128), 1e6 ** (-1 / 128)]
    )


def test_folder_loads_and_runs(tmp_path: Path) -> None:
    model = load_model(write_folder(tmp_path / "tiny"))
    assert (model.name, model.path, model.architecture) == ("tiny", tmp_path / "tiny", "llama")
    token_ids = model.tokenizer.encode("badc")
    assert token_ids == [1, 0, 3, 2]
    rows, ends = np.arange(4, dtype=np.int32), np.array([0, 4], dtype=np.int32)
    batch = StepBatch(np.array(token_ids, dtype=np.int32), rows, ends, rows, ends, rows)
    executor = ReferenceExecutor(model.plan, model.weights, ExecutorOptions(num_slots=4))
    logits = executor.run(batch)
    assert logits.shape == (4, 5)
    assert np.isfinite(logits).all()
    with pytest.raises(ChatTemplateError):
        model.role_template()


def test_folder_takes_its_chat_template(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny")
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    assert load_model(folder).chat_template_source == "{{ messages[0].content }}"


def test_tokenizer_with_more_tokens_than_embeddings_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", tokens="abcdef")
    with pytest.raises(ModelFileError, match="has 6 tokens, but the model has embeddings for 5"):
        load_model(folder)


def test_unknown_architecture_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "tiny", model_type="rwkv")
    with pytest.raises(UnsupportedError, match="model_type 'rwkv'; supported are gemma3_text"):
        load_model(folder)


def test_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="does not exist; give a GGUF file or a"):
        load_model(tmp_path / "absent.gguf")


def test_truncated_model_is_refused(tmp_path: Path, smollm2_path: Path) -> None:
    with smollm2_path.open("rb") as file:
        (tmp_path / "cut.gguf").write_bytes(file.read(5_000_000))
    with pytest.raises(ModelFileError, match="bytes too short for it"):
        load_model(tmp_path / "cut.gguf")
