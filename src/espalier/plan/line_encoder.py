"""Tokenises prompts line by line where the tokenizer allows it: most lines of a batch are the same.

Gives the tokens that PromptEncoder gives. An engine spends its time on other things than that.
"""

from __future__ import annotations

import re

from espalier.backends.prompt_ids import Ids, Pieces, PromptEncoder
from espalier.tokenizer.tokenizer import Tokenizer

MAX_LINES = 1 << 16  # that are remembered
MIN_SPLIT_CHARACTERS = 64  # a shorter run is tokenised as a whole
_CUT = re.compile(r"(?<=\S\n)(?=[A-Za-z])")  # see Tokenizer.splits_at_lines


class LineEncoder(PromptEncoder):
    """A PromptEncoder that remembers the tokens of lines."""

    def __init__(self, tokenizer: Tokenizer, max_tokens: int | None = None) -> None:
        super().__init__(tokenizer, max_tokens)
        self._splits = tokenizer.splits_at_lines()
        self._lines: dict[tuple[Pieces, bool], Ids] = {}

    def _tokenised(self, pieces: Pieces, at_start: bool) -> Ids:
        if not self._splits or sum(len(text) for text, _ in pieces) < MIN_SPLIT_CHARACTERS:
            return super()._tokenised(pieces, at_start)
        ids: list[int] = []
        for line in split_lines(pieces):
            ids += self._line(line, at_start)
            at_start = False
        return tuple(ids)

    def _line(self, line: Pieces, at_start: bool) -> Ids:
        key = (line, at_start)
        known = self._lines.get(key)
        if known is None:
            if len(self._lines) >= MAX_LINES:
                self._lines.clear()
            known = self._lines[key] = super()._tokenised(line, at_start)
        return known


def split_lines(pieces: Pieces) -> list[Pieces]:
    """The pieces of each line of the joined text, cut where tokens cannot reach across."""
    text = "".join(piece for piece, _ in pieces)
    cuts = [match.start() for match in _CUT.finditer(text)]
    lines: list[Pieces] = []
    line: list[tuple[str, bool]] = []
    start = index = 0
    for piece, allows in pieces:
        end = start + len(piece)
        begin = start
        while index < len(cuts) and cuts[index] < end:
            if cuts[index] > begin:
                line.append((text[begin : cuts[index]], allows))
            if line:
                lines.append(tuple(line))
            line, begin = [], cuts[index]
            index += 1
        if end > begin:
            line.append((text[begin:end], allows))
        start = end
    if line:
        lines.append(tuple(line))
    return lines
