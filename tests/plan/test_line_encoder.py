"""Tokens line by line are the tokens of the whole text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.backends.prompt_ids import Pieces, PromptEncoder
from espalier.plan.line_encoder import LineEncoder, split_lines
from espalier.plan.model import load_planned_model
from espalier.tokenizer.tokenizer import Tokenizer

FRAGMENTS = [
    "Sentence:", " In 1905", " she", "'s", "'ll", ".", "!!", "...", "\n", "\n\n", " \n", "\n ",
    "\r\n", "\t", "a\nb", "1\n2", "Topic: animals", "<|im_start|>", "<|im_end|>", "<bos>", "über",
    "日本", "\u2028", " ", "  ", "x" * 70,
]  # fmt: skip
pieces = st.lists(
    st.tuples(st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join), st.booleans()),
    min_size=1,
    max_size=4,
).map(tuple)


@pytest.fixture(scope="module", params=["smollm2_path", "gemma3_path"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    path: Path = request.getfixturevalue(request.param)
    return load_planned_model(path).tokenizer


@given(pieces, st.booleans())
@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_give_the_tokens_of_the_whole(
    tokenizer: Tokenizer, given_pieces: Pieces, at_start: bool
) -> None:
    by_line = LineEncoder(tokenizer).encode_run(given_pieces, at_start=at_start)
    assert by_line == PromptEncoder(tokenizer).encode_run(given_pieces, at_start=at_start)


def test_real_tokenizers_are_split(tokenizer: Tokenizer) -> None:
    assert tokenizer.splits_at_lines()


def test_lines_are_tokenised_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = LineEncoder(tokenizer)
    head = "".join(f"Line {number} of the examples that all rows share.\n" for number in range(9))
    encoder.encode_run(((head + "Sentence: one\nTopic:", True),), at_start=True)
    seen: list[str] = []
    whole = Tokenizer.encode_pieces

    def noted(self: Tokenizer, given_pieces: Pieces, **options: bool) -> list[int]:
        seen.append("".join(text for text, _ in given_pieces))
        return whole(self, given_pieces, **options)

    monkeypatch.setattr(Tokenizer, "encode_pieces", noted)
    encoder.encode_run(((head + "Sentence: two\nTopic:", True),), at_start=True)
    assert seen == ["Sentence: two\n"]


@given(pieces)
def test_split_lines_keeps_text_and_permissions(given_pieces: Pieces) -> None:
    def characters(runs: list[Pieces]) -> list[tuple[str, bool]]:
        return [(char, allows) for run in runs for text, allows in run for char in text]

    lines = split_lines(given_pieces)
    assert characters(lines) == characters([given_pieces])
    assert all(line and all(text for text, _ in line) for line in lines)
