"""Writes the tokenizer of a GGUF file as tokenizer.json and tokenizer_config.json.

Knows the metadata keys and the layout of the tokenizers library's file. Byte-level vocabularies
carry their merges; those of SentencePiece ones follow from the scores of their tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from espalier.tokenizer import byte_level
from espalier.tokenizer.sentencepiece import SPACE
from espalier.tokenizer.vocabulary import SpacePrefix, TokenKind, Vocabulary

_PREFIX = "tokenizer.ggml."
_ADDED_KINDS = (TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.USER_DEFINED)
_MERGED_KINDS = (TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNUSED)
_ROLES = ("bos", "eos", "pad", "unk")


def exported_tokenizer(metadata: Mapping[str, object], vocabulary: Vocabulary) -> dict[str, Any]:
    """What tokenizer.json holds; `vocabulary` is the one that tokenizer_from_gguf gives."""
    is_byte_level = metadata[f"{_PREFIX}model"] == "gpt2"
    parts = _byte_level(metadata, vocabulary) if is_byte_level else _by_score(metadata, vocabulary)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": _added_tokens(vocabulary),
        "post_processor": _bos_processor(vocabulary),
        **parts,
    }


def exported_tokenizer_config(
    vocabulary: Vocabulary, max_context: int, chat_template: str | None
) -> dict[str, Any]:
    """What tokenizer_config.json holds: roles, the BOS rule and the chat template."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_context,
        "add_bos_token": vocabulary.add_bos and vocabulary.bos_id is not None,
    }
    for role in _ROLES:
        token_id = getattr(vocabulary, f"{role}_id")
        if token_id is not None:
            config[f"{role}_token"] = vocabulary.texts[token_id]
    if chat_template is not None:
        config["chat_template"] = chat_template
    return config


def _added_tokens(vocabulary: Vocabulary) -> list[dict[str, Any]]:
    return [
        {
            "id": token_id,
            "content": vocabulary.texts[token_id],
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": vocabulary.kinds[token_id] != TokenKind.USER_DEFINED,
        }
        for token_id in vocabulary.ids_of(*_ADDED_KINDS)
    ]


def _bos_processor(vocabulary: Vocabulary) -> dict[str, Any] | None:
    if not vocabulary.add_bos or vocabulary.bos_id is None:
        return None
    text = vocabulary.texts[vocabulary.bos_id]
    bos: dict[str, Any] = {"SpecialToken": {"id": text, "type_id": 0}}
    first: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    second: dict[str, Any] = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [bos, first],
        "pair": [bos, first, second],
        "special_tokens": {text: {"id": text, "ids": [vocabulary.bos_id], "tokens": [text]}},
    }


def _model(texts: Sequence[str], merges: Sequence[tuple[str, str]], **more: Any) -> dict[str, Any]:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {text: token_id for token_id, text in enumerate(texts)},
        "merges": [list(pair) for pair in merges],
        **more,
    }


def _byte_level(metadata: Mapping[str, object], vocabulary: Vocabulary) -> dict[str, Any]:
    texts, kinds = vocabulary.texts, vocabulary.kinds
    pre = str(metadata.get(f"{_PREFIX}pre") or "default")
    barred = (TokenKind.CONTROL, TokenKind.UNKNOWN)
    ids = {text: token_id for token_id, text in enumerate(texts) if kinds[token_id] not in barred}
    listed = metadata[f"{_PREFIX}merges"]
    assert isinstance(listed, Sequence)
    merges = byte_level.merge_pairs(listed, ids, texts)
    steps: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in byte_level.WORD_PATTERNS[pre]
    ]
    alphabet = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*steps, alphabet]},
        "decoder": alphabet,
        "model": _model(texts, merges, ignore_merges=pre in byte_level.LLAMA3_NAMES),
    }


def _by_score(metadata: Mapping[str, object], vocabulary: Vocabulary) -> dict[str, Any]:
    texts = vocabulary.texts
    scores = metadata.get(f"{_PREFIX}scores") or [0.0] * len(texts)
    assert isinstance(scores, Sequence)
    spaces = [_replace(" ", SPACE)]
    undone = [_replace(SPACE, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if vocabulary.space_prefix is not SpacePrefix.NEVER:
        spaces.insert(0, {"type": "Prepend", "prepend": SPACE})
        undone.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = None if vocabulary.unk_id is None else texts[vocabulary.unk_id]
    return {
        "normalizer": {"type": "Sequence", "normalizers": spaces},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": undone},
        "model": _model(
            texts,
            merges_by_score(vocabulary, scores),
            unk_token=unknown,
            fuse_unk=False,
            byte_fallback=True,
        ),
    }


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def merges_by_score(vocabulary: Vocabulary, scores: Sequence[float]) -> list[tuple[str, str]]:
    """The pairs of tokens that make a third, those of the highest score first.

    Merging the pair that is first in this list, the leftmost among equals, is what SentencePiece
    does by score, but for tokens of equal scores, which it takes from the left.
    """
    ids = {vocabulary.texts[token_id]: token_id for token_id in vocabulary.ids_of(*_MERGED_KINDS)}
    merges: list[tuple[str, str]] = []
    for text in sorted(ids, key=lambda text: (-scores[ids[text]], ids[text])):
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in ids and right in ids:
                merges.append((left, right))
    return merges
