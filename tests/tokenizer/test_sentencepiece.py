"""Merging by scores against its definition, and cutting into words against not cutting."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.tokenizer.sentencepiece import (
    SPACE,
    SentencePieceEncoder,
    merge_by_heap,
    merge_by_scan,
)
from espalier.tokenizer.vocabulary import TokenKind

ALPHABET = f"ab{SPACE}"
scores_by_text = st.dictionaries(
    st.text(ALPHABET, min_size=2, max_size=4), st.sampled_from([-3.0, -2.0, -1.0, 0.0]), max_size=12
)


def naive_merge(word: str, scores: dict[str, float]) -> list[str]:
    """Again and again: all pairs, the best score, the leftmost of the best."""
    symbols = list(word)
    while True:
        pairs = [
            (-scores[symbols[index] + symbols[index + 1]], index)
            for index in range(len(symbols) - 1)
            if symbols[index] + symbols[index + 1] in scores
        ]
        if not pairs:
            return symbols
        _, at = min(pairs)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@settings(deadline=None)
@given(st.text(ALPHABET, max_size=30), scores_by_text)
def test_both_ways_of_merging_equal_the_definition(word: str, scores: dict[str, float]) -> None:
    wanted = naive_merge(word, scores)
    assert merge_by_scan(word, scores) == wanted
    assert merge_by_heap(word, scores) == wanted


@settings(deadline=None)
@given(st.text("ab ", max_size=30), scores_by_text)
def test_cutting_into_words_changes_nothing(text: str, scores: dict[str, float]) -> None:
    texts = ["<unk>", "a", "b", SPACE, *scores]
    kinds = bytes([TokenKind.UNKNOWN] + [TokenKind.NORMAL] * (len(texts) - 1))
    values = [0.0, -9.0, -9.0, -9.0, *scores.values()]
    encoder = SentencePieceEncoder(texts, kinds, values, unk_id=0)
    wanted = [texts.index(symbol) for symbol in naive_merge(text.replace(" ", SPACE), scores)]
    assert encoder.encode(text) == wanted
    assert encoder.encode(text) == wanted  # from the cache


def test_control_and_byte_tokens_are_never_merged_out_of_text() -> None:
    texts = ["<unk>", "<s>", "<0x41>", "<", "s", ">", "s>", "0", "x", "4", "1", "0x", "41", "0x41"]
    texts += ["<0x41", "<s"]
    kinds = bytearray([TokenKind.NORMAL]) * len(texts)
    kinds[0], kinds[1], kinds[2] = TokenKind.UNKNOWN, TokenKind.CONTROL, TokenKind.BYTE
    encoder = SentencePieceEncoder(texts, bytes(kinds), [0.0] * len(texts), unk_id=0)
    for text in ("<s>", "<0x41>", "<unk>"):
        assert not {1, 2} & set(encoder.encode(text))
    assert [texts[index] for index in encoder.encode("<s>")] == ["<s", ">"]


def test_characters_without_a_token_become_bytes_or_unknown() -> None:
    bytes_too = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "a"]
    kinds = bytes([TokenKind.UNKNOWN, *[TokenKind.BYTE] * 256, TokenKind.NORMAL])
    encoder = SentencePieceEncoder(bytes_too, kinds, [0.0] * 258, unk_id=0)
    assert encoder.encode("aé") == [257, 1 + 0xC3, 1 + 0xA9]
    without = SentencePieceEncoder(["<unk>", "a"], kinds[:1] + kinds[-1:], [0.0, 0.0], unk_id=0)
    assert without.encode("aé") == [1, 0, 0]
    neither = SentencePieceEncoder(["a"], kinds[-1:], [0.0], unk_id=None)
    assert neither.encode("aé") == [0]


def test_long_words_are_quick() -> None:
    texts = ["a", "b", "ab", "ba", "aba", "abab", "abababab", "ababababababab"]
    kinds = bytes([TokenKind.NORMAL]) * len(texts)
    encoder = SentencePieceEncoder(texts, kinds, [-float(i) for i in range(len(texts))], None)
    start = time.process_time()
    ids = encoder.encode("ab" * 50_000)
    assert time.process_time() - start < 10
    assert "".join(texts[token_id] for token_id in ids) == "ab" * 50_000
