"""Builds a tokenizer from a Hugging Face folder: tokenizer.json and the small files beside it.

The tokenizers library does the encoding. Two things are taken out of its hands, so that they can
be decided per call: special tokens, and the space that some tokenizers put before a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from espalier.errors import ModelFileError, UnsupportedError
from espalier.tokenizer import byte_level
from espalier.tokenizer.hf_json import (
    decoding,
    json_file,
    take_space_prefix,
    tokenizer_json,
)
from espalier.tokenizer.marker_names import END_NAMES, HTML_NAMES, TURN_NAMES
from espalier.tokenizer.sentencepiece import SPACE
from espalier.tokenizer.special_tokens import SpecialToken
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.tokenizer.vocabulary import SpacePrefix, TokenKind, Vocabulary

_MODELS = ("BPE", "Unigram")
_MAX_VOCAB_SIZE = 1 << 24


class LibraryEncoder:
    """Encodes text with a tokenizers-library tokenizer, as if control tokens were plain text.

    `without_space` is the same tokenizer, but for the space that it puts before a text.
    """

    def __init__(self, library: tokenizers.Tokenizer, without_space: tokenizers.Tokenizer) -> None:
        self._library = library
        self._without_space = without_space
        library.encode_special_tokens = without_space.encode_special_tokens = True

    def encode(self, text: str, *, adds_space: bool) -> list[int]:
        """Token ids of a text."""
        library = self._library if adds_space else self._without_space
        ids: list[int] = library.encode(text, add_special_tokens=False).ids
        return ids


def tokenizer_from_folder(path: Path) -> Tokenizer:
    """The tokenizer of a model folder; ids are those of the folder's tokenizer.json.

    Raises ModelFileError where tokenizer.json is missing or damaged, UnsupportedError for a
    kind of tokenizer that has no byte-level or SentencePiece decoding.
    """
    source = tokenizer_json(path)
    config = json_file(path / "tokenizer_config.json")
    special_map = json_file(path / "special_tokens_map.json")
    model_config = json_file(path / "config.json")
    generation = {**model_config, **json_file(path / "generation_config.json")}
    model = source.get("model")
    kind = model.get("type", "BPE") if isinstance(model, dict) else None
    if kind not in _MODELS:
        raise UnsupportedError(
            f"{path / 'tokenizer.json'} holds a model of the kind {kind!r}; supported are "
            f"{' and '.join(_MODELS)}. Use another model."
        )
    original = _library(path, source)
    names = {role: _role_text(role, config, special_map) for role in ("bos", "eos", "pad", "unk")}
    added = _added_tokens(path, source, original, names.values())
    source["added_tokens"] = added
    source["post_processor"] = source["truncation"] = source["padding"] = None
    library = _library(path, source)
    prefix = take_space_prefix(source)
    without_space = library if prefix is SpacePrefix.NEVER else _library(path, source)
    ids = {
        role: None if name is None else library.token_to_id(name) for role, name in names.items()
    }
    eos_ids = _eos_ids(ids["eos"], generation, added)
    bos_id = ids["bos"] if ids["bos"] is not None else _first_id(generation.get("bos_token_id"))
    size = max(library.get_vocab(with_added_tokens=True).values(), default=-1) + 1
    size = max(size, _model_vocab_size(model_config))
    texts, kinds, pieces = _tokens(library, added, ids["unk"], size, decoding(path, source))
    vocabulary = Vocabulary(
        texts=texts,
        kinds=kinds,
        pieces=pieces,
        bos_id=bos_id,
        eos_id=ids["eos"],
        eos_ids=eos_ids,
        pad_id=ids["pad"],
        unk_id=ids["unk"],
        add_bos=_adds_bos(config, original, bos_id),
        space_prefix=prefix,
    )
    return Tokenizer(vocabulary, LibraryEncoder(library, without_space), _special_tokens(added))


def chat_template_from_folder(path: Path) -> str | None:
    """The chat template of a model folder, or None.

    Looks for chat_template.jinja, then for `chat_template` in tokenizer_config.json (of several
    named ones, the one named "default"), then for chat_template.json.
    """
    own_file = path / "chat_template.jinja"
    if own_file.is_file():
        return own_file.read_text(encoding="utf-8")
    for name in ("tokenizer_config.json", "chat_template.json"):
        template = json_file(path / name).get("chat_template")
        if isinstance(template, list):
            entries = [entry for entry in template if isinstance(entry, dict)]
            named = [entry.get("template") for entry in entries if entry.get("name") == "default"]
            template = named[-1] if named else None
        if isinstance(template, str):
            return template
    return None


def _library(path: Path, source: Mapping[str, Any]) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(source))
    except Exception as error:  # the library raises plain Exception
        raise ModelFileError(
            f"{path / 'tokenizer.json'} cannot be read by the tokenizers library ({error}). "
            "Download it again, or update the library."
        ) from error


def _role_text(role: str, config: Mapping[str, Any], fallback: Mapping[str, Any]) -> str | None:
    key = f"{role}_token"
    value = config[key] if key in config else fallback.get(key)
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _added_tokens(
    path: Path,
    source: Mapping[str, Any],
    library: tokenizers.Tokenizer,
    role_names: Iterable[str | None],
) -> list[dict[str, Any]]:
    """The file's added tokens; what is a marker by name or role is made special."""
    markers = (END_NAMES | TURN_NAMES) - HTML_NAMES | {name for name in role_names if name}
    added = []
    for entry in source.get("added_tokens") or []:
        token = dict(entry)
        token["special"] = bool(token.get("special")) or token["content"] in markers
        if token["special"] and token.get("single_word"):
            raise UnsupportedError(
                f"the special token {token['content']!r} of {path / 'tokenizer.json'} is found "
                "as a whole word only (single_word), which is not supported. Use another model."
            )
        token["id"] = library.token_to_id(token["content"])
        added.append(token)
    return added


def _eos_ids(
    eos_id: int | None, generation: Mapping[str, Any], added: Iterable[Mapping[str, Any]]
) -> frozenset[int]:
    ends = END_NAMES - HTML_NAMES
    ids = [eos_id, *(token["id"] for token in added if token["content"] in ends)]
    listed = generation.get("eos_token_id")
    ids += listed if isinstance(listed, list) else [listed]
    return frozenset(token_id for token_id in ids if isinstance(token_id, int))


def _first_id(value: Any) -> int | None:
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, int) else None


def _adds_bos(
    config: Mapping[str, Any], original: tokenizers.Tokenizer, bos_id: int | None
) -> bool:
    given = config.get("add_bos_token")
    if isinstance(given, bool):
        return given
    return bos_id is not None and original.encode("").ids[:1] == [bos_id]


def _model_vocab_size(config: Mapping[str, Any]) -> int:
    """Rows of the model's output: often more than there are tokens."""
    text_config = config.get("text_config")
    nested = text_config.get("vocab_size") if isinstance(text_config, dict) else None
    size = config.get("vocab_size", nested)
    return size if isinstance(size, int) and 0 <= size <= _MAX_VOCAB_SIZE else 0


def _tokens(
    library: tokenizers.Tokenizer,
    added: Iterable[Mapping[str, Any]],
    unk_id: int | None,
    size: int,
    scheme: tuple[bool, bool],
) -> tuple[list[str], bytes, list[bytes]]:
    """Text, kind and bytes of each token; an id that no token has is an unused token."""
    by_text = library.get_vocab(with_added_tokens=True)
    is_byte_level, has_byte_tokens = scheme
    texts = [f"[EMPTY_{index}]" for index in range(size)]
    kinds = bytearray([TokenKind.UNUSED]) * size
    pieces = [b""] * size
    for text, token_id in by_text.items():
        texts[token_id] = text
        kinds[token_id] = TokenKind.NORMAL
        if is_byte_level:
            pieces[token_id] = byte_level.bytes_of(text)
        elif has_byte_tokens and len(text) == 6 and text.startswith("<0x"):
            kinds[token_id] = TokenKind.BYTE
            pieces[token_id] = bytes([int(text[3:5], 16)])
        else:
            pieces[token_id] = text.replace(SPACE, " ").encode("utf-8", "replace")
    for token in added:
        kind = TokenKind.CONTROL if token["special"] else TokenKind.USER_DEFINED
        kinds[token["id"]] = kind
        pieces[token["id"]] = token["content"].encode("utf-8", "replace")
    if unk_id is not None:
        kinds[unk_id] = TokenKind.UNKNOWN
    return texts, bytes(kinds), pieces


def _special_tokens(added: Iterable[Mapping[str, Any]]) -> list[SpecialToken]:
    return [
        SpecialToken(
            token_id=token["id"],
            text=token["content"],
            is_control=True,
            lstrip=bool(token.get("lstrip")),
            rstrip=bool(token.get("rstrip")),
        )
        for token in added
        if token["special"]
    ]
