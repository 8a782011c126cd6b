"""Reads tokenizer.json and the JSON files beside it, and says what is in them.

Knows the layout of the files, and nothing of vocabularies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from espalier.errors import ModelFileError, UnsupportedError
from espalier.tokenizer.sentencepiece import SPACE
from espalier.tokenizer.vocabulary import SpacePrefix

_SPACE_DECODERS = frozenset({"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"})


def tokenizer_json(path: Path) -> dict[str, Any]:
    """The tokenizer.json of a folder; an error that says what to do where there is none."""
    file = path / "tokenizer.json"
    if not file.is_file():
        if any((path / name).is_file() for name in ("tokenizer.model", "spiece.model")):
            raise UnsupportedError(
                f"{path} has a SentencePiece model but no tokenizer.json, which is needed. "
                "Convert it once: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) "
                "of the transformers package writes one."
            )
        raise ModelFileError(
            f"{path} has no tokenizer.json. Download the model's whole folder, tokenizer included."
        )
    return json_file(file)


def json_file(file: Path) -> dict[str, Any]:
    """An object from a JSON file; {} where there is no such file."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelFileError(f"{file} is not JSON ({error}). Download it again.") from None
    if not isinstance(value, dict):
        raise ModelFileError(
            f"{file} holds a {type(value).__name__}; a JSON object is needed. Download it again."
        )
    return value


def take_space_prefix(source: dict[str, Any]) -> SpacePrefix:
    """Changes a tokenizer.json so that it adds no space; returns where it did."""
    found = SpacePrefix.NEVER
    for step in _steps(source.get("normalizer"), "normalizers"):
        if step["type"] == "Prepend" and step.get("prepend") == SPACE:
            step.clear()
            step.update(type="Sequence", normalizers=[])
            found = SpacePrefix.PER_FRAGMENT
    for step in _steps(source.get("pre_tokenizer"), "pretokenizers"):
        if step["type"] == "Metaspace":
            older = "always" if step.pop("add_prefix_space", True) else "never"
            scheme = step.get("prepend_scheme", older)
            step["prepend_scheme"] = "never"
            if scheme != "never":
                is_first = scheme == "first"
                found = SpacePrefix.AT_START if is_first else SpacePrefix.PER_FRAGMENT
        elif step["type"] == "ByteLevel" and step.get("add_prefix_space"):
            step["add_prefix_space"] = False
            found = SpacePrefix.PER_FRAGMENT
    return found


def decoding(path: Path, source: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether token texts are in the byte alphabet, and whether there are byte tokens."""
    steps = _steps(source.get("decoder"), "decoders")
    if not steps:
        steps = [
            step
            for step in _steps(source.get("pre_tokenizer"), "pretokenizers")
            if step["type"] in ("ByteLevel", "Metaspace")
        ]
    names = {step["type"] for step in steps}
    if names == {"ByteLevel"}:
        return True, False
    if names and names <= _SPACE_DECODERS:
        return False, "ByteFallback" in names
    raise UnsupportedError(
        f"{path / 'tokenizer.json'} decodes by {', '.join(sorted(names)) or 'nothing'}; supported "
        "are ByteLevel, and SentencePiece's Replace, ByteFallback, Fuse, Strip and Metaspace. "
        "Use another model."
    )


def _steps(part: Any, inner: str) -> list[dict[str, Any]]:
    """The steps of a normalizer, pre-tokenizer or decoder, sequences opened."""
    if not isinstance(part, dict):
        return []
    if part.get("type") != "Sequence":
        return [part]
    return [step for entry in part.get(inner, []) for step in _steps(entry, inner)]
