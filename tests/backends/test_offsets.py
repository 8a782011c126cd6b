from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.backends.toy import TOKENS, toy_tokenizer

from espalier.backends.offsets import prompt_offset, token_offsets
from espalier.backends.prompt_ids import PromptEncoder
from espalier.types import Prompt, Segment, TextSegment, TokenSegment

TEXT = st.text("abcd! \n", max_size=8)
IDS = st.lists(st.integers(3, len(TOKENS) - 1), min_size=1, max_size=4)


def generated(token_ids: list[int]) -> Segment:
    text = "".join(toy_tokenizer().token_text(token_id) for token_id in token_ids)
    return TokenSegment(tuple(token_ids), text)


SEGMENTS = st.lists(st.one_of(TEXT.map(TextSegment), IDS.map(generated)), max_size=5)


@given(SEGMENTS, st.booleans())
def test_a_prompts_tokens_lie_where_their_texts_put_together_end(
    segments: list[Segment], add_bos: bool
) -> None:
    prompt: Prompt = tuple(segments)
    tokenizer = toy_tokenizer(add_bos)
    encoder = PromptEncoder(tokenizer)
    ids = encoder.encode(prompt).all
    for count in range(len(ids) + 1):
        naive = sum(
            len(tokenizer.token_text(token_id))
            for token_id in ids[:count]
            if token_id != tokenizer.bos_id
        )
        assert prompt_offset(tokenizer, encoder, prompt, count) == naive


def test_a_bos_that_the_text_spells_is_part_of_the_text() -> None:
    tokenizer = toy_tokenizer(False)
    encoder = PromptEncoder(tokenizer)
    prompt = (TextSegment("<s>ab"),)
    assert encoder.encode(prompt).all[0] == tokenizer.bos_id
    assert prompt_offset(tokenizer, encoder, prompt, 1) == len("<s>")


@given(IDS)
def test_generated_tokens_begin_where_the_ones_before_end(token_ids: list[int]) -> None:
    tokenizer = toy_tokenizer()
    offsets = token_offsets(tokenizer, token_ids)
    naive = [len(tokenizer.decode(token_ids[:count])) for count in range(len(token_ids) + 1)]
    assert offsets == naive


def test_control_tokens_stand_for_no_generated_text() -> None:
    assert token_offsets(toy_tokenizer(), [3, 2, 4]) == [0, 1, 1, 2]
