"""Tokenizers of GGUF files written as tokenizer.json: ids, texts and ends stay the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as LibraryTokenizer

from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.hf_export import (
    exported_tokenizer,
    exported_tokenizer_config,
    merges_by_score,
)
from espalier.tokenizer.hf_folder import chat_template_from_folder, tokenizer_from_folder
from espalier.tokenizer.vocabulary import TokenKind, Vocabulary

KINDS = ["byte_level_metadata", "sentencepiece_metadata", "smollm2_metadata", "gemma3_metadata"]


def texts_of(corpus: Any) -> Iterator[str]:
    if isinstance(corpus, str):
        yield corpus
    elif isinstance(corpus, dict | list):
        for part in corpus.values() if isinstance(corpus, dict) else corpus:
            yield from texts_of(part)


def write_folder(path: Path, metadata: dict[str, Any], template: str | None = None) -> Path:
    vocabulary = tokenizer_from_gguf(metadata).vocabulary
    config = exported_tokenizer_config(vocabulary, 512, template)
    (path / "tokenizer.json").write_text(json.dumps(exported_tokenizer(metadata, vocabulary)))
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    return path


def with_unequal_scores(metadata: dict[str, Any]) -> dict[str, Any]:
    """Scores of which no two are equal: between equal ones a list of merges must choose."""
    scores = metadata["tokenizer.ggml.scores"]
    apart = [score - 1e-4 * index for index, score in enumerate(scores)]
    return {**metadata, "tokenizer.ggml.scores": apart}


@pytest.mark.parametrize("kind", KINDS)
def test_folder_gives_the_ids_of_the_file(
    kind: str, corpus: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    metadata = request.getfixturevalue(kind)
    if kind == "sentencepiece_metadata":
        metadata = with_unequal_scores(metadata)
    original = tokenizer_from_gguf(metadata)
    made = tokenizer_from_folder(write_folder(tmp_path, metadata))
    for text in texts_of(corpus):
        for allow_special in (False, True):
            ids = original.encode(text, allow_special=allow_special)
            assert made.encode(text, allow_special=allow_special) == ids
            assert made.decode(ids) == original.decode(ids)
    for name in ("texts", "bos_id", "eos_id", "pad_id", "unk_id", "add_bos", "space_prefix"):
        assert getattr(made.vocabulary, name) == getattr(original.vocabulary, name), name


@pytest.mark.parametrize("kind", KINDS)
def test_other_programs_put_the_bos_in_front_where_the_file_says_so(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    metadata = request.getfixturevalue(kind)
    folder = write_folder(tmp_path, metadata)
    library = LibraryTokenizer.from_file(str(folder / "tokenizer.json"))
    original = tokenizer_from_gguf(metadata)
    text = "A plan, and 12 notes."
    assert library.encode(text).ids == original.encode(text)


def test_chat_template_is_kept(byte_level_metadata: dict[str, Any], tmp_path: Path) -> None:
    folder = write_folder(tmp_path, byte_level_metadata, "{{ messages }}")
    assert chat_template_from_folder(folder) == "{{ messages }}"


def test_merges_are_ordered_by_the_score_of_what_they_make() -> None:
    texts = ["a", "b", "c", "ab", "bc", "abc", "<x>"]
    kinds = bytes([TokenKind.NORMAL] * 6 + [TokenKind.CONTROL])
    vocabulary = Vocabulary(texts=texts, kinds=kinds, pieces=[text.encode() for text in texts])
    scores = [-9.0, -9.0, -9.0, -2.0, -1.0, -1.5, 0.0]
    assert merges_by_score(vocabulary, scores) == [
        ("b", "c"),
        ("a", "bc"),
        ("ab", "c"),
        ("a", "b"),
    ]
