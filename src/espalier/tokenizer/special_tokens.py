"""Finds control and user-defined tokens in a text, before the rest of it is encoded.

The order of search is llama.cpp's: the longest token takes all its occurrences, then the next
longest takes what is left, and so on. Control tokens are found only where the caller allows it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # start and end, in characters
Fragment = int | Span  # a token, or text that is still to be encoded


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A token that is found by its text.

    `lstrip` and `rstrip`: it swallows the whitespace beside it, as some Hugging Face files say.
    """

    token_id: int
    text: str
    is_control: bool
    lstrip: bool = False
    rstrip: bool = False


class SpecialTokens:
    """The special tokens of one vocabulary, ready to be searched for."""

    def __init__(self, tokens: Iterable[SpecialToken]) -> None:
        given = [token for token in tokens if token.text]
        given.sort(key=lambda token: -len(token.text.encode("utf-8", "surrogatepass")))
        self._tokens = given
        self._rank = {token.text: rank for rank, token in enumerate(given)}
        lengths: dict[str, set[int]] = {}
        for token in given:
            lengths.setdefault(token.text[:2], set()).add(len(token.text))
        self._lengths = {head: sorted(values) for head, values in lengths.items()}
        self._heads = _heads_pattern(self._lengths)

    def split(self, text: str, allowed: Sequence[Span]) -> list[Fragment]:
        """Cuts `text` into special tokens and the spans between them, in order.

        A control token is taken only where it lies inside one of the spans of `allowed`, which
        are ascending and do not touch each other.
        """
        fragments: list[Fragment] = [(0, len(text))] if text else []
        for rank in sorted(self._present(text)):
            token = self._tokens[rank]
            if token.is_control and not allowed:
                continue
            found: list[Fragment] = []
            for fragment in fragments:
                if isinstance(fragment, int):
                    found.append(fragment)
                else:
                    _cut(text, fragment, token, allowed if token.is_control else None, found)
            fragments = found
        return fragments

    def _present(self, text: str) -> set[int]:
        """Ranks of the tokens whose text occurs in `text`."""
        present: set[int] = set()
        if self._heads is None:
            return present
        position = 0
        while match := self._heads.search(text, position):
            start = match.start()
            position = start + 1
            for head in {text[start], text[start : start + 2]}:
                for length in self._lengths.get(head, ()):
                    rank = self._rank.get(text[start : start + length])
                    if rank is not None:
                        present.add(rank)
        return present


def _heads_pattern(heads: Iterable[str]) -> re.Pattern[str] | None:
    """Matches the first one or two characters of every special token."""
    seconds: dict[str, set[str]] = {}
    for head in heads:
        seconds.setdefault(head[0], set()).add(head[1:])
    parts = []
    for first, rest in sorted(seconds.items()):
        part = re.escape(first)
        if "" not in rest:
            part += "[" + "".join(map(re.escape, sorted(rest))) + "]"
        parts.append(part)
    return re.compile("|".join(parts)) if parts else None


def _cut(
    text: str,
    span: Span,
    token: SpecialToken,
    allowed: Sequence[Span] | None,
    found: list[Fragment],
) -> None:
    """Cuts one span at every allowed occurrence of a token; appends the fragments to `found`."""
    start, end = span
    position = start
    while (match := text.find(token.text, position, end)) >= 0:
        stop = match + len(token.text)
        if allowed is not None and not _inside(match, stop, allowed):
            position = match + 1
            continue
        left = match
        while token.lstrip and left > start and text[left - 1].isspace():
            left -= 1
        if left > start:
            found.append((start, left))
        found.append(token.token_id)
        while token.rstrip and stop < end and text[stop].isspace():
            stop += 1
        start = position = stop
    if start < end:
        found.append((start, end))


def _inside(start: int, end: int, spans: Sequence[Span]) -> bool:
    index = bisect_right(spans, (start, 1 << 62)) - 1
    return index >= 0 and spans[index][0] <= start and end <= spans[index][1]
