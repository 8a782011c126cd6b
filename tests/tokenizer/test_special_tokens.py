"""The search for special tokens against a plain version of llama.cpp's."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.tokenizer.special_tokens import Fragment, Span, SpecialToken, SpecialTokens

ALPHABET = "ab\n<"
token_texts = st.lists(st.text(ALPHABET, min_size=1, max_size=4), unique=True, max_size=6)


def naive_split(
    tokens: list[SpecialToken], text: str, allowed: list[bool]
) -> list[tuple[int | None, str]]:
    """Longest token first; each takes its leftmost free and allowed places, one by one."""
    owner: list[tuple[int, int] | None] = [None] * len(text)  # (token, start) of each character
    for token in sorted(tokens, key=lambda token: -len(token.text.encode())):
        length = len(token.text)
        start = 0
        while start + length <= len(text):
            place = range(start, start + length)
            free = all(owner[index] is None for index in place)
            permitted = not token.is_control or all(allowed[index] for index in place)
            if text[start : start + length] == token.text and free and permitted:
                for index in place:
                    owner[index] = (token.token_id, start)
                start += length
            else:
                start += 1
    parts: list[tuple[int | None, str]] = []
    last: tuple[int, int] | None = None
    for index, char in enumerate(text):
        if index and owner[index] == last:
            parts[-1] = (parts[-1][0], parts[-1][1] + char)
        else:
            last = owner[index]
            parts.append((None if last is None else last[0], char))
    return parts


def readable(fragments: list[Fragment], text: str) -> list[tuple[int | None, str]]:
    texts = iter(fragments)
    return [(part, "") if isinstance(part, int) else (None, text[slice(*part)]) for part in texts]


def spans_of(flags: list[bool]) -> list[Span]:
    spans: list[Span] = []
    for index, flag in enumerate(flags):
        if flag and spans and spans[-1][1] == index:
            spans[-1] = (spans[-1][0], index + 1)
        elif flag:
            spans.append((index, index + 1))
    return spans


@settings(deadline=None)
@given(token_texts, st.data())
def test_split_equals_the_plain_version(texts: list[str], data: st.DataObject) -> None:
    tokens = [
        SpecialToken(token_id, text, is_control=data.draw(st.booleans()))
        for token_id, text in enumerate(texts)
    ]
    text = data.draw(st.text(ALPHABET, max_size=20))
    size = len(text)
    allowed = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    found = SpecialTokens(tokens).split(text, spans_of(allowed))
    wanted = [
        (token_id, "" if token_id is not None else part)
        for token_id, part in naive_split(tokens, text, allowed)
    ]
    assert readable(found, text) == wanted


def test_control_token_across_a_border_of_permission_stays_text() -> None:
    special = SpecialTokens([SpecialToken(7, "<end>", is_control=True)])
    text = "<end><end>"
    assert special.split(text, [(0, 10)]) == [7, 7]
    assert special.split(text, [(0, 4)]) == [(0, 10)]
    assert special.split(text, [(1, 10)]) == [(0, 5), 7]
    assert special.split(text, [(0, 5)]) == [7, (5, 10)]
    assert special.split(text, []) == [(0, 10)]


def test_whitespace_beside_a_token_is_swallowed_where_it_says_so() -> None:
    token = SpecialToken(1, "<x>", is_control=True, lstrip=True, rstrip=True)
    special = SpecialTokens([token])
    assert special.split("a \n<x>  b", [(0, 9)]) == [(0, 1), 1, (8, 9)]
    assert special.split(" <x> ", [(0, 5)]) == [1]


def test_split_of_long_runs_is_quick() -> None:
    special = SpecialTokens(
        SpecialToken(length, "\n" * length, is_control=False) for length in range(1, 32)
    )
    text = "\n" * 20_000 + "a\n" * 10_000
    start = time.process_time()
    fragments = special.split(text, [])
    assert time.process_time() - start < 5
    assert sum(part for part in fragments if isinstance(part, int)) == 30_000


def test_no_tokens_leave_the_text_whole() -> None:
    assert SpecialTokens([]).split("abc", [(0, 3)]) == [(0, 3)]
    assert SpecialTokens([]).split("", []) == []
