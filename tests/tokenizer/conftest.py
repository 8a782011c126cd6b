"""Vocabularies that the tokenizer tests share: small ones of our own, and the real models'."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from espalier.loaders.gguf import GgufFile
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.tokenizer import Tokenizer

DATA = Path(__file__).parent / "data"


def _data_file(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((DATA / name).read_text(encoding="ascii"))
    return value


@pytest.fixture(scope="session")
def corpus() -> dict[str, Any]:
    """ "named": texts by name; "random": texts put together at random."""
    return _data_file("corpus.json")


@pytest.fixture(scope="session")
def byte_level_metadata() -> dict[str, Any]:
    """A small byte-level BPE vocabulary in GGUF's keys, with the smollm pre-tokenizer."""
    return {**_data_file("small_byte_level.json"), "tokenizer.ggml.pre": "smollm"}


@pytest.fixture(scope="session")
def sentencepiece_metadata() -> dict[str, Any]:
    """A small SentencePiece vocabulary in GGUF's keys."""
    return _data_file("small_sentencepiece.json")


@pytest.fixture(scope="session")
def byte_level(byte_level_metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_from_gguf(byte_level_metadata)


@pytest.fixture(scope="session")
def sentencepiece(sentencepiece_metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_from_gguf(sentencepiece_metadata)


@pytest.fixture(scope="session")
def smollm2_metadata(smollm2_path: Path) -> dict[str, Any]:
    return dict(GgufFile(smollm2_path).metadata)


@pytest.fixture(scope="session")
def smollm2(smollm2_metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_from_gguf(smollm2_metadata)


@pytest.fixture(scope="session")
def gemma3_metadata(gemma3_path: Path) -> dict[str, Any]:
    return dict(GgufFile(gemma3_path).metadata)


@pytest.fixture(scope="session")
def gemma3(gemma3_metadata: dict[str, Any]) -> Tokenizer:
    return tokenizer_from_gguf(gemma3_metadata)
