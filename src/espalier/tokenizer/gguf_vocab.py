"""Builds a tokenizer from the `tokenizer.ggml.*` metadata of a GGUF file.

Knows the metadata keys and llama.cpp's defaults, and nothing of the file itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from espalier.errors import ModelFileError, UnsupportedError
from espalier.tokenizer import byte_level, sentencepiece
from espalier.tokenizer.marker_names import END_NAMES, FIM_NAMES, TURN_NAMES
from espalier.tokenizer.special_tokens import SpecialToken
from espalier.tokenizer.tokenizer import TextEncoder, Tokenizer
from espalier.tokenizer.vocabulary import SpacePrefix, TokenKind, Vocabulary

_PREFIX = "tokenizer.ggml."
_BYTE_LEVEL = "gpt2"
_SENTENCEPIECE = "llama"
_SENTENCEPIECE_IDS = {"bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0}
_HIDDEN_KINDS = frozenset({TokenKind.UNUSED, 0})  # they stand for no text


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes; ids are those of llama.cpp.

    `metadata` maps whole keys (`tokenizer.ggml.tokens`, ...) to plain Python or numpy values.
    Raises UnsupportedError for a tokenizer of another kind, ModelFileError for damaged metadata.
    """
    fields = _Fields(metadata)
    model = fields.text("model")
    if model not in (_BYTE_LEVEL, _SENTENCEPIECE):
        raise UnsupportedError(
            f"the file's tokenizer is of the kind {model!r}; supported are {_BYTE_LEVEL!r} "
            f"(byte-level BPE) and {_SENTENCEPIECE!r} (SentencePiece). Use another model."
        )
    texts = fields.texts("tokens")
    if not texts:
        raise ModelFileError(f"{_PREFIX}tokens is empty. The file is damaged.")
    texts = [text or f"[EMPTY_{index}]" for index, text in enumerate(texts)]
    by_text = {text: index for index, text in enumerate(texts)}
    if len(by_text) != len(texts):
        raise ModelFileError(
            f"{len(texts) - len(by_text)} of the {len(texts)} tokens of {_PREFIX}tokens are there "
            "twice. The file is damaged."
        )
    kinds = fields.kinds(len(texts))
    defaults = _SENTENCEPIECE_IDS if model == _SENTENCEPIECE else {}
    eos_ids = _mark_by_name(fields, by_text, kinds, defaults)
    build = _sentencepiece if model == _SENTENCEPIECE else _byte_level
    vocabulary, encoder = build(fields, texts, bytes(kinds), defaults, frozenset(eos_ids))
    return Tokenizer(vocabulary, encoder, _special_tokens(vocabulary))


class _Fields:
    """Typed access to the metadata; each method raises ModelFileError for a wrong value."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata

    def get(self, key: str) -> Any:
        return self._metadata.get(_PREFIX + key)

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise ModelFileError(
                f"the file has no {_PREFIX}{key}; without it there is no tokenizer. "
                "Use a complete GGUF file."
            )
        return value

    def text(self, key: str) -> str:
        value = self.need(key)
        if not isinstance(value, str):
            raise _wrong(key, value, "text")
        return value

    def texts(self, key: str) -> list[str]:
        value = self.need(key)
        if isinstance(value, (str, bytes)) or not isinstance(value, (Sequence, np.ndarray)):
            raise _wrong(key, value, "a list of texts")
        values = list(value)
        if set(map(type, values)) <= {str}:
            return values
        if not all(isinstance(text, str) for text in values):
            raise _wrong(key, value, "a list of texts")
        return [str(text) for text in values]

    def flag(self, key: str, default: bool) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, (bool, np.bool_)):
            raise _wrong(key, value, "true or false")
        return bool(value)

    def token_id(self, key: str, default: int | None) -> int | None:
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise _wrong(key, value, "a whole number")
        return int(value)

    def numbers(self, key: str, count: int, dtype: type) -> list[Any] | None:
        value = self.get(key)
        if value is None:
            return None
        try:
            numbers: np.ndarray[Any, Any] = np.asarray(value, dtype=dtype)
        except (TypeError, ValueError):
            raise _wrong(key, value, "a list of numbers") from None
        if numbers.ndim != 1 or len(numbers) < count:
            raise ModelFileError(
                f"{_PREFIX}{key} has the shape {numbers.shape}; one number for each of the "
                f"{count} tokens is needed. The file is damaged."
            )
        listed: list[Any] = numbers[:count].tolist()
        return listed

    def kinds(self, count: int) -> bytearray:
        numbers = self.numbers("token_type", count, np.int64)
        if numbers is None:
            return bytearray([TokenKind.NORMAL]) * count
        known = {int(kind) for kind in TokenKind}
        return bytearray(kind if kind in known else 0 for kind in numbers)


def _wrong(key: str, value: object, wanted: str) -> ModelFileError:
    return ModelFileError(
        f"{_PREFIX}{key} is of the type {type(value).__name__}; {wanted} is needed. "
        "The file is damaged."
    )


def _mark_by_name(
    fields: _Fields, by_text: Mapping[str, int], kinds: bytearray, defaults: Mapping[str, int]
) -> set[int]:
    """Makes control tokens of the markers that are known by name; returns the end tokens."""
    ends = {by_text[name] for name in END_NAMES & by_text.keys()}
    turns = {by_text[name] for name in TURN_NAMES & by_text.keys()}
    marked = ends | {token_id for token_id in turns if kinds[token_id] == TokenKind.USER_DEFINED}
    for key, (names, ends_generation) in FIM_NAMES.items():
        token_id = fields.token_id(key, None)
        if token_id is None:
            token_id = next((by_text[name] for name in names if name in by_text), None)
            marked.update(() if token_id is None else (token_id,))
        if token_id is not None and ends_generation:
            ends.add(token_id)
    for token_id in marked:
        kinds[token_id] = TokenKind.CONTROL
    for key in ("eos_token_id", "eot_token_id", "eom_token_id"):
        token_id = fields.token_id(key, defaults.get(key))
        if token_id is not None:
            ends.add(token_id)
    return ends


def _vocabulary(
    fields: _Fields,
    texts: list[str],
    kinds: bytes,
    pieces: list[bytes],
    defaults: Mapping[str, int],
    **more: Any,
) -> Vocabulary:
    return Vocabulary(
        texts=texts,
        kinds=kinds,
        pieces=pieces,
        bos_id=fields.token_id("bos_token_id", defaults.get("bos_token_id")),
        eos_id=fields.token_id("eos_token_id", defaults.get("eos_token_id")),
        pad_id=fields.token_id("padding_token_id", None),
        unk_id=fields.token_id("unknown_token_id", defaults.get("unknown_token_id")),
        **more,
    )


def _byte_level(
    fields: _Fields,
    texts: list[str],
    kinds: bytes,
    defaults: Mapping[str, int],
    eos_ids: frozenset[int],
) -> tuple[Vocabulary, TextEncoder]:
    pre = fields.get("pre") or "default"
    encoder = byte_level.ByteLevelEncoder(texts, kinds, fields.texts("merges"), str(pre))
    pieces = [_byte_level_piece(text, kind) for text, kind in zip(texts, kinds, strict=True)]
    add_bos = fields.flag("add_bos_token", pre in byte_level.LLAMA3_NAMES)
    with_space = fields.flag("add_space_prefix", False)
    if with_space:
        raise UnsupportedError(
            f"{_PREFIX}add_space_prefix is true in a byte-level vocabulary; only false is "
            "supported there. Use another model file."
        )
    vocabulary = _vocabulary(
        fields, texts, kinds, pieces, defaults, eos_ids=eos_ids, add_bos=add_bos
    )
    return vocabulary, encoder


def _byte_level_piece(text: str, kind: int) -> bytes:
    if kind == TokenKind.NORMAL:
        return byte_level.bytes_of(text)
    if kind == TokenKind.BYTE:
        return _byte_of(text)
    return b"" if kind in _HIDDEN_KINDS else text.encode("utf-8", "replace")


def _sentencepiece(
    fields: _Fields,
    texts: list[str],
    kinds: bytes,
    defaults: Mapping[str, int],
    eos_ids: frozenset[int],
) -> tuple[Vocabulary, TextEncoder]:
    scores = fields.numbers("scores", len(texts), np.float32) or [0.0] * len(texts)
    pieces = [_sentencepiece_piece(text, kind) for text, kind in zip(texts, kinds, strict=True)]
    with_space = fields.flag("add_space_prefix", True)
    vocabulary = _vocabulary(
        fields,
        texts,
        kinds,
        pieces,
        defaults,
        eos_ids=eos_ids,
        add_bos=fields.flag("add_bos_token", True),
        space_prefix=SpacePrefix.PER_FRAGMENT if with_space else SpacePrefix.NEVER,
    )
    encoder = sentencepiece.SentencePieceEncoder(texts, kinds, scores, vocabulary.unk_id)
    return vocabulary, encoder


def _sentencepiece_piece(text: str, kind: int) -> bytes:
    if kind == TokenKind.NORMAL:
        return text.replace(sentencepiece.SPACE, " ").encode("utf-8", "replace")
    if kind == TokenKind.BYTE:
        return _byte_of(text)
    return b"" if kind in _HIDDEN_KINDS else text.encode("utf-8", "replace")


def _byte_of(text: str) -> bytes:
    try:
        return bytes([int(text[3:5], 16)])
    except ValueError:
        raise ModelFileError(
            f"the byte token {text!r} is not of the form <0x00>. The file is damaged."
        ) from None


def _special_tokens(vocabulary: Vocabulary) -> list[SpecialToken]:
    kinds = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED)
    return [
        SpecialToken(
            token_id=token_id,
            text=vocabulary.texts[token_id],
            is_control=vocabulary.kinds[token_id] != TokenKind.USER_DEFINED,
        )
        for token_id in vocabulary.ids_of(*kinds)
    ]
