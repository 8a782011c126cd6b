from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backends.toy import CONTROLS, TOKENS, toy_logprob, toy_text_probability, toy_tokenizer

from espalier.backends import text_probability
from espalier.backends.text_probability import log_probability_of_text
from espalier.backends.token_index import TokenIndex
from espalier.errors import CapacityError

INDEX = TokenIndex(toy_tokenizer())


async def next_logprobs(context: tuple[int, ...], wanted: Sequence[int]) -> list[float]:
    return [toy_logprob(context, token) for token in wanted]


def computed(context: tuple[int, ...], data: bytes) -> float:
    return asyncio.run(log_probability_of_text(context, data, INDEX, next_logprobs))


@settings(max_examples=60, deadline=None)
@given(
    st.text("abcd !", min_size=1, max_size=5), st.lists(st.integers(0, len(TOKENS) - 1), max_size=4)
)
def test_it_is_the_sum_over_every_way_to_cut_the_text(text: str, context: list[int]) -> None:
    naive = toy_text_probability(context, text.encode())
    assert computed(tuple(context), text.encode()) == pytest.approx(math.log(naive), abs=2e-5)


def test_first_bytes_exclude_each_other_and_are_all_that_can_come() -> None:
    total = sum(math.exp(computed((3,), bytes([byte]))) for byte in b"abcd! \n")
    controls = sum(math.exp(toy_logprob((3,), token)) for token in range(len(CONTROLS)))
    assert total == pytest.approx(1.0 - controls, abs=2e-5)


def test_text_without_tokens_is_impossible_and_no_text_is_certain() -> None:
    assert computed((3,), b"z") == -math.inf
    assert computed((3,), b"az") == -math.inf
    assert computed((3,), b"") == 0.0


def test_too_many_ways_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_probability, "MAX_CONTEXTS", 3)
    with pytest.raises(CapacityError, match="more than 3 ways"):
        computed((3,), b"abcabcabc")


def test_the_index_finds_what_a_scan_finds() -> None:
    tokenizer = toy_tokenizer()
    pieces = {token: tokenizer.token_bytes(token) for token in range(len(CONTROLS), len(TOKENS))}
    for data in (b"", b"a", b"ab", b"abcd", b" ", b"    ", b"z", b"c a"):
        covering = {token for token, piece in pieces.items() if piece.startswith(data)}
        leading = {t for t, piece in pieces.items() if data.startswith(piece) and piece != data}
        assert set(INDEX.starting_with(data)) == covering
        assert {token for _, token in INDEX.proper_prefixes(data)} == leading
