"""Masks of outlines-core: an index of each schema, a guide for each text, filling by address."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import numpy as np
import outlines_core
from bench.constrain.mask_adapter import serve
from outlines_core import json_schema


class _Matcher:
    def __init__(self, guide: Any, words: Any) -> None:
        self._guide = guide
        self._words = words
        self._address = words.ctypes.data

    def fill(self) -> None:
        self._guide.write_mask_into(self._address, len(self._words), 4)

    def allows(self, token_id: int) -> bool:
        return bool(self._words[token_id // 32] >> np.uint32(token_id % 32) & np.uint32(1))

    def accept(self, token_id: int) -> None:
        self._guide.advance(token_id, False)


class OutlinesCore:
    """Schemas become regular expressions, and those an index of all states."""

    def start(self, vocabulary: dict[str, Any]) -> dict[str, Any]:
        special = set(vocabulary["special"])
        tokens: dict[bytes, list[int]] = {}
        for token_id, piece in enumerate(vocabulary["pieces"]):
            if token_id not in special and piece:
                tokens.setdefault(bytes.fromhex(piece), []).append(token_id)
        self._vocabulary = outlines_core.Vocabulary(vocabulary["eos_id"], tokens)
        self._words = np.zeros((vocabulary["vocab_size"] + 31) // 32, np.uint32)
        return {"version": version("outlines-core")}

    def compile(self, schema: str) -> Any:
        regex = json_schema.build_regex_from_schema(schema, "")
        return outlines_core.Index(regex, self._vocabulary)

    def matcher(self, grammar: Any) -> _Matcher:
        return _Matcher(outlines_core.Guide(grammar), self._words)


if __name__ == "__main__":
    serve(OutlinesCore())
