"""Streaming equals decoding the whole, and never gives out half a character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import PromptError
from espalier.tokenizer.incremental import IncrementalDecoder
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.tokenizer.vocabulary import SpacePrefix, TokenKind, Vocabulary


class NoText:
    """An encoder for vocabularies that are only decoded."""

    def encode(self, text: str, *, adds_space: bool) -> list[int]:
        raise AssertionError(text, adds_space)


def tokenizer_of(
    pieces: list[bytes], *, bos: bool = False, prefix: SpacePrefix = SpacePrefix.NEVER
) -> Tokenizer:
    """A tokenizer whose tokens are these bytes; with `bos`, token 0 is BOS."""
    kinds = bytearray([TokenKind.NORMAL]) * len(pieces)
    if bos:
        kinds[0] = TokenKind.CONTROL
    vocabulary = Vocabulary(
        texts=[str(index) for index in range(len(pieces))],
        kinds=bytes(kinds),
        pieces=pieces,
        bos_id=0 if bos else None,
        space_prefix=prefix,
    )
    return Tokenizer(vocabulary, NoText(), [])


def stream(decoder: IncrementalDecoder, ids: list[int]) -> list[str]:
    return [*map(decoder.push, ids), decoder.finish()]


BYTES = tokenizer_of([bytes([byte]) for byte in range(256)])
PIECES = st.lists(
    st.one_of(st.binary(max_size=4), st.text(max_size=3).map(str.encode)), min_size=1, max_size=12
)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_bytes_one_by_one_equal_the_whole(data: bytes) -> None:
    assert "".join(stream(BYTES.decoder(), list(data))) == data.decode("utf-8", "replace")
    assert BYTES.decode(data) == data.decode("utf-8", "replace")


@settings(deadline=None)
@given(st.text(max_size=20), st.binary(max_size=3), st.text(max_size=5))
def test_broken_characters_between_text_equal_the_whole(a: str, junk: bytes, b: str) -> None:
    data = a.encode() + junk + b.encode()
    assert "".join(stream(BYTES.decoder(), list(data))) == data.decode("utf-8", "replace")


@settings(deadline=None)
@given(PIECES, st.data(), st.booleans(), st.sampled_from([None, True, False]))
def test_any_tokens_equal_the_whole(
    pieces: list[bytes], data: st.DataObject, skip: bool, at_start: bool | None
) -> None:
    tokenizer = tokenizer_of(pieces, bos=True, prefix=SpacePrefix.PER_FRAGMENT)
    ids = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=12))
    decoder = tokenizer.decoder(skip_special_tokens=skip, at_start=at_start)
    whole = tokenizer.decode(ids, skip_special_tokens=skip, at_start=at_start)
    assert "".join(stream(decoder, ids)) == whole


@settings(deadline=None)
@given(st.text(max_size=30))
def test_each_character_comes_with_its_last_byte(text: str) -> None:
    decoder = BYTES.decoder()
    for char in text:
        *early, last = char.encode()
        assert [decoder.push(byte) for byte in early] == [""] * len(early)
        assert decoder.push(last) == char
    assert decoder.finish() == ""


def test_character_that_never_ends_is_given_at_the_end() -> None:
    decoder = BYTES.decoder()
    assert [decoder.push(byte) for byte in b"\xf0\x9f\x8c"] == ["", "", ""]
    assert decoder.finish() == "\ufffd"


def test_impossible_byte_is_given_at_once() -> None:
    decoder = BYTES.decoder()
    assert decoder.push(0xFF) == "\ufffd"
    assert decoder.push(0xE2) == ""
    assert decoder.push(ord("a")) == "\ufffda"


def test_space_after_bos_is_dropped_once() -> None:
    pieces = [b"<s>", b" a", b" ", b"b", b""]
    tokenizer = tokenizer_of(pieces, bos=True, prefix=SpacePrefix.PER_FRAGMENT)
    assert tokenizer.decode([0, 1, 1]) == "a a"
    assert tokenizer.decode([0, 4, 2, 3]) == "b"
    assert tokenizer.decode([1, 1]) == " a a"
    assert tokenizer.decode([1, 1], at_start=True) == "a a"
    assert tokenizer.decode([0, 1], at_start=False) == " a"
    assert tokenizer.decode([0, 1, 0, 1], skip_special_tokens=False) == "<s>a<s>a"
    assert tokenizer.decode([0, 3, 1]) == "b a"
    assert tokenizer_of(pieces, bos=True).decode([0, 1]) == " a"


def test_streaming_of_real_tokens_never_splits_a_character(byte_level: Tokenizer) -> None:
    text = "🌳 pêche 果树 👨‍👩‍👧‍👦"
    decoder = byte_level.decoder()
    pieces = [decoder.push(token_id) for token_id in byte_level.encode(text)]
    assert "".join(pieces) + decoder.finish() == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_id_outside_the_vocabulary_is_refused() -> None:
    for token_id in (-1, 256):
        with pytest.raises(PromptError, match=r"ids from 0 to 255"):
            BYTES.decoder().push(token_id)
        with pytest.raises(PromptError, match=r"ids from 0 to 255"):
            BYTES.decode([token_id])
        with pytest.raises(PromptError, match=r"ids from 0 to 255"):
            BYTES.token_bytes(token_id)
