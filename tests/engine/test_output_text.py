"""Output text against decoding everything and cutting at the first complete stop."""

from __future__ import annotations

import codecs
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from espalier.engine.output_text import OutputText
from espalier.types import SamplingParams

END = 1000  # a control token, without text when skipped


class ByteDecoder:
    """Decodes tokens that are byte strings, one by one."""

    def __init__(self, pieces: dict[int, bytes]) -> None:
        self._pieces = pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def has_pending(self) -> bool:
        return bool(self._utf8.getstate()[0])

    def push(self, token_id: int) -> str:
        return self._utf8.decode(self._pieces[token_id])

    def push_bytes(self, data: bytes) -> str:
        return self._utf8.decode(data)

    def bytes_of(self, token_id: int) -> bytes:
        return self._pieces[token_id]

    def finish(self) -> str:
        return self._utf8.decode(b"", final=True)


class ByteTokenizer:
    """Token i stands for the i-th of the given byte strings."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = dict(enumerate(pieces))

    def decoder(self, *, skip_special_tokens: bool = True) -> ByteDecoder:
        return ByteDecoder({**self.pieces, END: b"" if skip_special_tokens else b"<end>"})


def output_text(pieces: list[bytes], cut_at: tuple[str, ...] = (), **sampling: Any) -> OutputText:
    return OutputText(ByteTokenizer(pieces), SamplingParams(**sampling), cut_at)


def cut_at_stop(text: str, stops: tuple[str, ...], keeps_stop: bool) -> tuple[str, str | None]:
    """Naive: grow the text a character at a time until it ends in a stop; the longest wins."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return (text[:end] if keeps_stop else text[: end - len(stop)]), stop
    return text, None


def may_become_stop(text: str, stops: tuple[str, ...]) -> int:
    """Characters at the end of `text` that begin a stop."""
    return max(
        (n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0
    )


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(borders)]


LETTERS = st.sampled_from("ab\u00e9\U0001f600\n")
RAW = st.one_of(
    st.lists(LETTERS, max_size=14).map(lambda letters: "".join(letters).encode()),
    st.lists(st.sampled_from([b"a", b"b", b"\xc3", b"\xa9", b"\xf0\x9f", b"\x98\x80"])).map(
        b"".join
    ),
)
STOPS = st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=4).map(tuple)


def spelled(stops: tuple[str, ...], num_as_regex: int) -> dict[str, tuple[str, ...]]:
    """Sampling parameters with some stops as they are and the first ones as an expression."""
    regex = "|".join(map(re.escape, stops[:num_as_regex]))
    return {"stop": stops[num_as_regex:], "stop_regex": (regex,) if regex else ()}


@settings(max_examples=500, deadline=None)
@given(RAW, st.lists(st.integers(0, 60), max_size=20), STOPS, st.booleans(), st.integers(0, 4))
@example(b"aab", [1, 2], ("aab", "ab", "b"), False, 0)
@example(b"aaaab", [1, 2, 3, 4], ("aab", "aaac"), False, 0)
@example(b"aaaab", [1, 2, 3, 4], ("aab", "aaac"), False, 1)
@example(b"aaaab", [1, 2, 3, 4], ("aab", "ab"), True, 2)
def test_text_equals_naive_cut_at_every_length(
    data: bytes, cuts: list[int], stops: tuple[str, ...], keeps: bool, num_as_regex: int
) -> None:
    pieces = pieces_of(data, cuts)
    output = output_text(pieces, no_stop_trim=keeps, **spelled(stops, num_as_regex))
    utf8 = codecs.getincrementaldecoder("utf-8")("replace")
    decoded, shown = "", ""
    for token_id, piece in enumerate(pieces):
        decoded += utf8.decode(piece)
        expected, stop = cut_at_stop(decoded, stops, keeps)
        assert output.push(token_id) == stop
        if stop is None and not keeps:
            held_back = may_become_stop(decoded, stops)
            expected = decoded[: len(decoded) - held_back]
        assert output.text == expected
        assert output.text.startswith(shown)  # never taken back
        shown = output.text
        if stop is not None:
            break
    output.finish()
    whole, stop = cut_at_stop(data.decode("utf-8", "replace"), stops, keeps)
    assert (output.text, output.matched_stop) == (whole, stop)
    assert output.text.startswith(shown)


@settings(max_examples=300, deadline=None)
@given(RAW, st.lists(st.integers(0, 60), max_size=20), STOPS, st.booleans(), st.integers(0, 4))
def test_text_token_ids_stand_for_the_text_or_are_none(
    data: bytes, cuts: list[int], stops: tuple[str, ...], keeps: bool, num_as_regex: int
) -> None:
    pieces = pieces_of(data, cuts)
    output = output_text(pieces, no_stop_trim=keeps, **spelled(stops, num_as_regex))
    for token_id in range(len(pieces)):
        stop = output.push(token_id)
        check_token_ids(output, pieces, is_final=False)
        if stop is not None:
            break
    output.finish()
    check_token_ids(output, pieces, is_final=True)


def check_token_ids(output: OutputText, pieces: list[bytes], *, is_final: bool) -> None:
    """Naive: the shortest run of leading tokens whose decoding is the text."""
    ids = output.text_token_ids()
    shortest = None
    for count in range(len(pieces) + 1):
        joined = b"".join(pieces[:count])
        if joined.decode("utf-8", "replace") == output.text:
            is_whole = joined == output.text.encode()
            if is_whole or (is_final and count == len(pieces)):
                shortest = count
                break
    if ids is not None:
        joined = b"".join(pieces[token_id] for token_id in ids)
        assert joined.decode("utf-8", "replace") == output.text
    if "\ufffd" not in output.text:
        assert ids == (None if shortest is None else list(range(shortest)))


def test_stop_across_tokens_is_found_and_held_back() -> None:
    output = output_text([b"Hello wo", b"rld\n", b"\nQ", b"uestion"], stop=("\n\nQuest",))
    assert output.push(0) is None
    assert output.text == "Hello wo"
    assert output.push(1) is None
    assert output.text == "Hello world"  # the newline may begin the stop
    assert output.push(2) is None
    assert output.text == "Hello world"
    assert output.text_token_ids() is None  # token 1 goes past the text
    assert output.push(3) == "\n\nQuest"
    assert output.text == "Hello world"
    assert output.text_token_ids() is None


def test_stop_that_is_whole_tokens_leaves_the_tokens_before_it() -> None:
    output = output_text([b"4", b"2", b"\n", b"x"], stop=(" ", "\n"))
    assert [output.push(token_id) for token_id in range(3)] == [None, None, "\n"]
    assert output.text == "42"
    assert output.text_token_ids() == [0, 1]
    kept = output_text([b"4", b"2", b"\n", b"x"], stop=("\n",), no_stop_trim=True)
    assert [kept.push(token_id) for token_id in range(3)] == [None, None, "\n"]
    assert kept.text == "42\n"
    assert kept.text_token_ids() == [0, 1, 2]


def test_stop_inside_a_token_leaves_no_tokens_for_the_text() -> None:
    output = output_text([b"4", b"2 apples"], stop=(" ",))
    assert output.push(0) is None
    assert output.push(1) == " "
    assert output.text == "42"
    assert output.text_token_ids() is None


def test_the_stop_that_is_complete_first_wins() -> None:
    output = output_text([b"abcd"], stop=("abcd", "bc"))
    assert output.push(0) == "bc"
    assert output.text == "a"
    longest = output_text([b"xab"], stop=("b", "ab"))
    assert longest.push(0) == "ab"
    assert longest.text == "x"


def test_finish_shows_what_was_held_back_and_marks_half_a_character() -> None:
    output = output_text([b"ok <", b"\xf0\x9f"], stop=("<end>",))
    output.push(0)
    output.push(1)
    assert output.text == "ok "
    output.finish()
    assert output.text == "ok <\ufffd"
    assert output.matched_stop is None
    assert output.text_token_ids() == [0, 1]


@pytest.mark.parametrize(("skip", "text"), [(True, "hi"), (False, "hi<end>")])
def test_end_token_has_text_only_where_asked_for(skip: bool, text: str) -> None:
    output = output_text([b"h", b"i"], skip_special_tokens=skip)
    for token_id in (0, 1, END):
        output.push(token_id)
    output.finish()
    assert output.text == text
    assert output.text_token_ids() == ([0, 1] if skip else [0, 1, END])


def test_strings_to_cut_at_are_cut_off_where_stops_are_kept() -> None:
    pieces = [b"4", b"2. And", b"END"]
    number = output_text(pieces, (". ",), stop=("END",), no_stop_trim=True)
    assert [number.push(0), number.push(1)] == [None, ". "]
    assert number.text == "42"
    number = output_text(pieces, (". ",), stop_regex="[A-Z]+D", no_stop_trim=True)
    assert [number.push(0), number.push(1)] == [None, ". "]
    assert number.text == "42"
    words = output_text(pieces, (".\n",), stop=("END",), no_stop_trim=True)
    assert [words.push(token_id) for token_id in range(3)] == [None, None, "END"]
    assert words.text == "42. AndEND"


def test_a_stop_before_min_new_tokens_is_text_and_a_later_one_ends() -> None:
    text = output_text([b"ab", b"c"], stop=("b",), min_new_tokens=3)
    assert [text.push(token_id) for token_id in (0, 1, 0)] == [None, None, "b"]
    assert text.text == "abca"


def test_a_stop_that_min_new_tokens_cuts_through_ends_where_it_is_complete() -> None:
    text = output_text([b"a", b"b"], stop=("ab",), min_new_tokens=2)
    assert [text.push(0), text.push(1)] == [None, "ab"]
    assert text.text == ""


@pytest.mark.parametrize("keeps", [False, True])
def test_a_match_across_many_tokens_is_named_whole_and_cut_or_kept(keeps: bool) -> None:
    pieces = [b"one\n", b" \n", b"\n ", b"Q", b"12", b": two"]
    output = output_text(pieces, stop_regex=r"\s+Q\d+:", no_stop_trim=keeps)
    shown = []
    for token_id in range(5):
        assert output.push(token_id) is None
        shown.append(output.text)
    assert shown[-1] == ("one\n \n\n Q12" if keeps else "one")
    assert output.push(5) == "\n \n\n Q12:"
    assert output.text == ("one\n \n\n Q12:" if keeps else "one")
    assert output.matched_stop == "\n \n\n Q12:"


def test_a_match_before_min_new_tokens_is_text_and_a_later_one_ends() -> None:
    text = output_text([b"ab", b"c"], stop_regex="[bx]", min_new_tokens=3)
    assert [text.push(token_id) for token_id in (0, 1, 0)] == [None, None, "b"]
    assert text.text == "abca"
