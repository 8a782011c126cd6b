"""Reasoning and answer in a text, by the marks of a model type, whole and piece by piece."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.lang.reasoning_format import (
    MODEL_TYPES,
    ReasoningParser,
    ReasoningSplitter,
)

R1 = "deepseek-r1"

CASES = [
    (R1, "r</think>a", ("r", "a")),
    (R1, "<think>r</think>a", ("r", "a")),
    (R1, "only thoughts", ("only thoughts", "")),
    ("qwen3", "<think>\nr\n</think>\n\na\n", ("r", "a")),
    ("qwen3", "a without", ("", "a without")),
    ("qwen3", "  <think>r</think></think>", ("r", "</think>")),
    ("qwen3-thinking", "r</think>a", ("r", "a")),
    ("kimi", "◁think▷r◁/think▷a", ("r", "a")),
    ("GLM45", "<think></think>\na", ("", "a")),
    ("step3", "", ("", "")),
]


@pytest.mark.parametrize(("model_type", "text", "expected"), CASES)
def test_texts_are_split_by_the_marks(model_type: str, text: str, expected: Any) -> None:
    assert ReasoningParser(model_type).parse_non_stream(text) == expected


@given(
    st.sampled_from(["deepseek-r1", "qwen3", "kimi"]),
    st.lists(
        st.sampled_from(["<think>", "</think>", "◁think▷", "◁/think▷", "<th", "a", " ", "\n"])
    ),
    st.lists(st.integers(0, 30)),
)
def test_any_pieces_of_a_text_give_what_the_whole_gives(
    model_type: str, parts: list[str], cuts: list[int]
) -> None:
    text = "".join(parts)
    splitter = ReasoningSplitter(MODEL_TYPES[model_type])
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [splitter.push(text[a:b]) for a, b in itertools.pairwise(ends)]
    pieces.append(splitter.end())
    joined = "".join(r for r, _ in pieces), "".join(a for _, a in pieces)
    assert joined == ReasoningParser(model_type).parse_non_stream(text)
    # The naive oracle: the whole text, looked at once.
    marks, body = MODEL_TYPES[model_type], text.lstrip()
    if body.startswith(marks.opening):
        body = body[len(marks.opening) :]
    elif not marks.is_open:
        assert joined == ("", text.strip())
        return
    reasoning, _, answer = body.partition(marks.closing)
    assert joined == (reasoning.strip(), answer.strip())


# Traced and compiled.
