"""Where a text may be cut before a line, its parts have the tokens of the whole."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from espalier.tokenizer.byte_level import WORD_PATTERNS
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.tokenizer import Tokenizer

CUT = re.compile(r"(?<=\S\n)(?=[A-Za-z])")
JOINTS = ["\n", " \n", "\n\n", "\n ", ".\n", "\r\n", "1\n", "é\n", "!?\n", "'\n"]


def texts(corpus: dict[str, Any]) -> list[str]:
    """The corpus's texts, and parts of them joined by line breaks of many kinds."""
    rng = random.Random(7)
    known = [*corpus["named"].values(), *corpus["random"]]
    made = []
    for _ in range(300):
        parts = []
        for _ in range(rng.randint(2, 6)):
            text = rng.choice(known)
            start = rng.randrange(len(text) + 1)
            parts.append(text[start : start + rng.randint(1, 12)])
            parts.append(rng.choice(JOINTS))
            parts.append(rng.choice(["Sentence", "a", "s", "'s", "x", ""]))
        made.append("".join(parts))
    return known + made


def check(tokenizer: Tokenizer, all_texts: list[str]) -> int:
    num_cuts = 0
    for text in all_texts:
        first, *rest = CUT.split(text)
        ids = tokenizer.encode(first)
        for part in rest:
            ids += tokenizer.encode(part, at_start=False)
        assert ids == tokenizer.encode(text), repr(text)
        num_cuts += len(rest)
    return num_cuts


@pytest.mark.parametrize("pre", sorted(WORD_PATTERNS))
def test_byte_level_texts_may_be_cut(
    byte_level_metadata: dict[str, Any], corpus: dict[str, Any], pre: str
) -> None:
    tokenizer = tokenizer_from_gguf({**byte_level_metadata, "tokenizer.ggml.pre": pre})
    assert tokenizer.splits_at_lines()
    assert check(tokenizer, texts(corpus)) > 300


def test_sentencepiece_texts_may_be_cut_where_no_space_is_added(
    sentencepiece_metadata: dict[str, Any], corpus: dict[str, Any]
) -> None:
    tokens = sentencepiece_metadata["tokenizer.ggml.tokens"]
    without = [
        f"unused {index}" if re.search(r"\n[A-Za-z]", token) else token
        for index, token in enumerate(tokens)
    ]
    metadata = {**sentencepiece_metadata, "tokenizer.ggml.add_space_prefix": False}
    assert not tokenizer_from_gguf(metadata).splits_at_lines()  # it has the token "\nint"
    metadata["tokenizer.ggml.tokens"] = without
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.splits_at_lines()
    assert check(tokenizer, texts(corpus)) > 300
    # A space comes before what follows a line break that is a token of its own.
    metadata["tokenizer.ggml.add_space_prefix"] = True
    assert not tokenizer_from_gguf(metadata).splits_at_lines()


def test_a_token_across_the_cut_forbids_it(byte_level_metadata: dict[str, Any]) -> None:
    tokens = list(byte_level_metadata["tokenizer.ggml.tokens"])
    kinds = list(byte_level_metadata["tokenizer.ggml.token_type"])
    across = {
        **byte_level_metadata,
        "tokenizer.ggml.tokens": [*tokens, "ĊA"],
        "tokenizer.ggml.token_type": [*kinds, 1],
    }
    assert not tokenizer_from_gguf(across).splits_at_lines()
