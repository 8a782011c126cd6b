"""Ids and bytes are llama.cpp's, for every vocabulary; damaged metadata is refused."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from espalier.errors import ModelFileError, UnsupportedError
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.tokenizer.vocabulary import SpacePrefix, TokenKind

DATA = Path(__file__).parent / "data"
BLOCK = 50
USER_DEFINED = TokenKind.USER_DEFINED
PRE_TOKENIZERS = ("smollm", "llama-bpe", "qwen2", "gpt-2", "default")
NAMES = (*PRE_TOKENIZERS, "llama-2", "no-prefix", "smollm2", "gemma3")


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Name of a vocabulary; the last two are those of real models."""
    return str(request.param)


@pytest.fixture
def expected(name: str) -> dict[str, Any]:
    text = (DATA / f"expected_{name}.json").read_text(encoding="ascii")
    value: dict[str, Any] = json.loads(text)
    return value


@pytest.fixture
def tokenizer(name: str, request: pytest.FixtureRequest) -> Tokenizer:
    if name in ("smollm2", "gemma3"):
        real: Tokenizer = request.getfixturevalue(name)
        return real
    if name in PRE_TOKENIZERS:
        metadata = request.getfixturevalue("byte_level_metadata")
        return tokenizer_from_gguf({**metadata, "tokenizer.ggml.pre": name})
    metadata = dict(request.getfixturevalue("sentencepiece_metadata"))
    if name == "no-prefix":
        metadata["tokenizer.ggml.add_space_prefix"] = False
    return tokenizer_from_gguf(metadata)


def ids_checksum(rows: Sequence[Sequence[int]]) -> str:
    return hashlib.sha256(json.dumps([list(row) for row in rows]).encode()).hexdigest()[:16]


def test_named_texts_have_the_reference_ids_as_plain_text(
    tokenizer: Tokenizer, expected: dict[str, Any], corpus: dict[str, Any]
) -> None:
    for name, text in corpus["named"].items():
        assert tokenizer.encode(text) == expected["plain"][name], name


def test_named_texts_have_the_reference_ids_with_control_tokens(
    tokenizer: Tokenizer, expected: dict[str, Any], corpus: dict[str, Any]
) -> None:
    for name, text in corpus["named"].items():
        ids = expected["special"].get(name, expected["plain"][name])
        if name not in expected["special"] and tokenizer.add_bos:
            ids = ids[1:]
        assert tokenizer.encode(text, allow_special=True, add_bos=False) == ids, name


@pytest.mark.parametrize("allow_special", [False, True])
def test_random_texts_have_the_reference_ids(
    tokenizer: Tokenizer, expected: dict[str, Any], corpus: dict[str, Any], allow_special: bool
) -> None:
    texts = corpus["random"]
    checksums = expected["random_special" if allow_special else "random_plain"]
    assert len(checksums) * BLOCK == len(texts)
    for index, checksum in enumerate(checksums):
        block = texts[index * BLOCK : (index + 1) * BLOCK]
        rows = [
            tokenizer.encode(text, allow_special=allow_special, add_bos=False) for text in block
        ]
        assert ids_checksum(rows) == checksum, f"texts {index * BLOCK} and following"


def test_every_token_has_the_reference_bytes(
    tokenizer: Tokenizer, expected: dict[str, Any]
) -> None:
    digest = hashlib.sha256()
    for token_id in range(tokenizer.vocab_size):
        piece = tokenizer.token_bytes(token_id)
        digest.update(len(piece).to_bytes(4, "little") + piece)
    assert digest.hexdigest()[:16] == expected["pieces"]


def test_random_tokens_decode_to_the_reference_bytes(
    tokenizer: Tokenizer, expected: dict[str, Any]
) -> None:
    for ids, data in expected["decoded"]:
        assert tokenizer.decode_bytes(ids, skip_special_tokens=False, at_start=False).hex() == data
        text = bytes.fromhex(data).decode("utf-8", "replace")
        assert tokenizer.decode(ids, skip_special_tokens=False, at_start=False) == text


def test_vocabulary_has_the_reference_size_and_end_tokens(
    tokenizer: Tokenizer, expected: dict[str, Any]
) -> None:
    assert tokenizer.vocab_size == expected["vocab_size"]
    assert sorted(tokenizer.eos_ids) == expected["end_ids"]
    assert tokenizer.add_bos == expected["add_bos"]


def test_decoding_gives_every_text_back(tokenizer: Tokenizer, corpus: dict[str, Any]) -> None:
    # What a vocabulary has no byte for is lost (SmolLM2 has 21 such bytes), SentencePiece reads
    # U+2581 as a space, and Llama 2's scheme puts a space after each user-defined token; every
    # other text must come back.
    lossy = ["\u2581"]
    if tokenizer.vocabulary.space_prefix is SpacePrefix.PER_FRAGMENT:
        lossy += [tokenizer.token_text(i) for i in tokenizer.vocabulary.ids_of(USER_DEFINED)]
    pieces = {tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)}
    known_bytes = {piece[0] for piece in pieces if len(piece) == 1}
    num_kept = 0
    for text in (*corpus["named"].values(), *corpus["random"]):
        if known_bytes.issuperset(text.encode()) and not any(part in text for part in lossy):
            ids = tokenizer.encode(text, add_bos=False)
            assert tokenizer.decode(ids, at_start=True) == text
            num_kept += 1
    assert num_kept > 400


def test_small_vocabularies_load_from_numpy_values(byte_level_metadata: dict[str, Any]) -> None:
    metadata = dict(byte_level_metadata)
    metadata["tokenizer.ggml.token_type"] = np.array(
        metadata["tokenizer.ggml.token_type"], dtype=np.int32
    )
    metadata["tokenizer.ggml.bos_token_id"] = np.uint32(1)
    metadata["tokenizer.ggml.add_bos_token"] = np.bool_(True)
    metadata["tokenizer.ggml.tokens"] = np.array(metadata["tokenizer.ggml.tokens"], dtype=object)
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.bos_id == 1
    assert tokenizer.encode("tree")[0] == 1


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "bert"}, UnsupportedError, "'bert'.*'gpt2'.*'llama'"),
        ({"model": None}, ModelFileError, "no tokenizer.ggml.model"),
        ({"model": 3}, ModelFileError, "of the type int"),
        ({"pre": "tekken"}, UnsupportedError, "'tekken'.*default, .*gpt-2.*smollm"),
        ({"tokens": None}, ModelFileError, "no tokenizer.ggml.tokens"),
        ({"tokens": []}, ModelFileError, "is empty"),
        ({"tokens": "abc"}, ModelFileError, "a list of texts is needed"),
        ({"tokens": [1, 2]}, ModelFileError, "a list of texts is needed"),
        ({"tokens": ["a", "a"]}, ModelFileError, "there twice"),
        ({"token_type": [1]}, ModelFileError, "one number for each"),
        ({"token_type": "x"}, ModelFileError, "a list of numbers is needed"),
        ({"merges": None}, ModelFileError, "no tokenizer.ggml.merges"),
        ({"merges": ["th"]}, ModelFileError, "merge 0 .*'th'"),
        ({"merges": ["t zzzz"]}, ModelFileError, "merge 0 .*'t zzzz'"),
        ({"bos_token_id": 10**6}, ModelFileError, "BOS token has the id 1000000"),
        ({"bos_token_id": "one"}, ModelFileError, "a whole number is needed"),
        ({"eos_token_id": 10**6}, ModelFileError, "EOS token has the id 1000000"),
        ({"add_bos_token": 1}, ModelFileError, "true or false is needed"),
        ({"add_space_prefix": True}, UnsupportedError, "add_space_prefix is true"),
    ],
)
def test_damaged_byte_level_metadata_is_refused(
    byte_level_metadata: dict[str, Any],
    changes: dict[str, object],
    error: type[Exception],
    message: str,
) -> None:
    metadata = dict(byte_level_metadata)
    for key, value in changes.items():
        metadata[f"tokenizer.ggml.{key}"] = value
    with pytest.raises(error, match=message):
        tokenizer_from_gguf(metadata)


def test_damaged_sentencepiece_metadata_is_refused(sentencepiece_metadata: dict[str, Any]) -> None:
    tokens = list(sentencepiece_metadata["tokenizer.ggml.tokens"])
    tokens[3] = "<0xZZ>"
    with pytest.raises(ModelFileError, match="byte token '<0xZZ>'"):
        tokenizer_from_gguf({**sentencepiece_metadata, "tokenizer.ggml.tokens": tokens})
    scores = list(sentencepiece_metadata["tokenizer.ggml.scores"])
    scores[400] = float("nan")
    with pytest.raises(ModelFileError, match="not a number"):
        tokenizer_from_gguf({**sentencepiece_metadata, "tokenizer.ggml.scores": scores})


def test_markers_are_control_tokens_whatever_the_file_says(
    byte_level_metadata: dict[str, Any],
) -> None:
    metadata = dict(byte_level_metadata)
    kinds = list(metadata["tokenizer.ggml.token_type"])
    kinds[1] = kinds[2] = 4  # user-defined turn markers
    tokenizer = tokenizer_from_gguf({**metadata, "tokenizer.ggml.token_type": kinds})
    assert tokenizer.is_control(1)
    assert tokenizer.is_control(2)
    assert not {1, 2} & set(tokenizer.encode("<|im_start|>user<|im_end|>"))
    ids = tokenizer.encode("<|im_start|>user<|im_end|>", allow_special=True)
    assert (ids[0], ids[-1]) == (1, 2)


def test_vocabularies_load_in_time(
    smollm2_metadata: dict[str, Any], gemma3_metadata: dict[str, Any]
) -> None:
    # Far above the measured times (0.4 s and 0.7 s): this catches a wrong order of growth only.
    for metadata, limit_s in ((smollm2_metadata, 5.0), (gemma3_metadata, 10.0)):
        start = time.process_time()
        tokenizer_from_gguf(metadata)
        assert time.process_time() - start < limit_s
