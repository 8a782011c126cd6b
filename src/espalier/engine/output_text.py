"""The text of one generation while its tokens arrive: whole characters, cut at stop strings.

Owns what part of the text is safe to show and which tokens stand for it. Knows no token ids with a
meaning (ends of text are the engine's business) and nothing of the sampler.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

from espalier.engine.stop_search import FoundStop, stop_search
from espalier.tokenizer.characters import begins_character
from espalier.types import SamplingParams


class TextDecoder(Protocol):
    """Turns tokens into text one at a time; holds back a character that is not whole yet."""

    @property
    def has_pending(self) -> bool:
        """True while bytes of an unfinished character are held back."""
        ...

    def push(self, token_id: int) -> str:
        """Text that the token completes, perhaps empty."""
        ...

    def push_bytes(self, data: bytes) -> str:
        """Text that some bytes complete, perhaps empty."""
        ...

    def bytes_of(self, token_id: int) -> bytes:
        """Bytes that the next token adds."""
        ...

    def finish(self) -> str:
        """What is still held back, with U+FFFD for bytes that are no character."""
        ...


class DecodingTokenizer(Protocol):
    """The part of a tokenizer that is needed here."""

    def decoder(self, *, skip_special_tokens: bool = True) -> TextDecoder:
        """A fresh decoder for one generation."""
        ...


class OutputText:
    """Text of one request, from its output tokens.

    Stop strings and matches of `stop_regex` are looked for in the text, wherever tokens begin and
    end in it: the stop that is complete first, character by character, ends the text; of several
    that are complete with the same character, the longest. `text` ends before the stop, or with it
    under `no_stop_trim`. The end of the text that may still become a stop is held back, so that
    text once shown is never taken back. A token costs time in proportion to its own text and to
    what is held back. A stop that is complete before there are `min_new_tokens` tokens is text like
    any other.

    `cut_at` are further stop strings, cut off even under `no_stop_trim` (the ends of a number that
    is asked for by dtype, say). Raises SamplingError for a `stop_regex` that cannot be used.
    """

    def __init__(
        self,
        tokenizer: DecodingTokenizer,
        sampling: SamplingParams,
        cut_at: tuple[str, ...] = (),
    ) -> None:
        self._decoder = tokenizer.decoder(skip_special_tokens=sampling.skip_special_tokens)
        self._search = stop_search(sampling, cut_at)
        self._min_tokens = sampling.min_new_tokens
        self._pieces: list[str] = []  # safe text
        self._safe_len = 0
        self._held_back = ""
        self._token_ids: list[int] = []
        self._ends: list[int] = []  # length of all text, shown or not, after each token
        self._is_whole: list[bool] = []  # no part of a character pending after that token
        self._num_characters = 0  # of all text
        self._bytes_ahead = b""  # of the text, after the last token
        self._is_finished = False
        self.matched_stop: str | None = None

    @property
    def text(self) -> str:
        """The safe text so far; all of the text after `finish` or a stop."""
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    def push(self, token_id: int) -> str | None:
        """Adds a token; returns the text of the stop that it completed, or None.

        No token may be added after a stop or after `finish`.
        """
        assert not self._is_finished, "a token after the end of the text"
        if self._bytes_ahead:
            return self._push_over(token_id)
        decoder = self._decoder
        piece = decoder.push(token_id)
        self._token_ids.append(token_id)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(piece))
        self._is_whole.append(not decoder.has_pending)
        self._num_characters += len(piece)
        self._add(piece)
        return self.matched_stop

    def push_end(self, token_id: int) -> None:
        """Adds a token that ends the text by itself, whatever stops its own text completes."""
        self._show(self._held_back)
        self._held_back = ""
        self._search = None
        self.push(token_id)

    def take_back(self, num_tokens: int) -> None:
        """Takes back the last tokens, but none of their text: the next tokens begin with it."""
        removed = self._token_ids[-num_tokens:]
        self._bytes_ahead = b"".join(map(self._decoder.bytes_of, removed)) + self._bytes_ahead
        for entries in (self._token_ids, self._ends, self._is_whole):
            del entries[-num_tokens:]

    def _push_over(self, token_id: int) -> str | None:
        """Adds a token whose text, or the beginning of it, is there already."""
        decoder = self._decoder
        data = decoder.bytes_of(token_id)
        num_known = min(len(data), len(self._bytes_ahead))
        ahead = self._bytes_ahead = self._bytes_ahead[num_known:]
        piece = decoder.push_bytes(data[num_known:]) if len(data) > num_known else ""
        self._num_characters += len(piece)
        self._token_ids.append(token_id)
        self._ends.append(self._num_characters - _num_ends(ahead, decoder.has_pending))
        self._is_whole.append(begins_character(ahead) if ahead else not decoder.has_pending)
        self._add(piece)
        return self.matched_stop

    def finish(self) -> None:
        """Ends the text: what was held back is text after all. Does nothing after a stop."""
        if self._is_finished:
            return
        piece = self._decoder.finish()
        self._num_characters += len(piece)
        if piece and self._ends:
            self._ends[-1] += len(piece)
            self._is_whole[-1] = True
        self._add(piece)
        if self.matched_stop is None:
            self._show(self._held_back)
            self._held_back = ""
        self._is_finished = True

    def text_token_ids(self) -> list[int] | None:
        """The leading tokens that stand for exactly `text`, None if there are none such.

        The fewest of them: tokens without text at the end (end of text, skipped control tokens)
        are left out. None where a stop cuts a token, or while a part of the last token's text is
        held back.
        """
        if self._safe_len == 0:
            return []
        index = bisect_left(self._ends, self._safe_len)
        if index == len(self._ends):  # the last tokens were taken back
            return None
        if self._ends[index] != self._safe_len or not self._is_whole[index]:
            return None
        return self._token_ids[: index + 1]

    def _add(self, piece: str) -> None:
        search = self._search
        if search is None:
            self._show(piece)
            return
        for count, character in enumerate(piece, 1):
            found = search.step(character)
            if found is not None:
                if len(self._token_ids) >= self._min_tokens:
                    self._end_at_stop(self._held_back + piece[:count], found)
                    return
                search.restart()  # the text may not end yet, so this is text like any other
        waiting = self._held_back + piece
        num_shown = len(waiting) - search.num_held
        self._show(waiting[:num_shown])
        self._held_back = waiting[num_shown:]

    def _end_at_stop(self, waiting: str, found: FoundStop) -> None:
        length = found.num_characters
        # Of a stop that is kept, the beginning may have been shown before.
        with_stop = waiting if len(waiting) >= length else self.text + waiting
        self.matched_stop = with_stop[len(with_stop) - length :]
        self._show(waiting if found.is_kept else waiting[: len(waiting) - length])
        self._held_back = ""
        self._is_finished = True

    def _show(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self._safe_len += len(piece)


def _num_ends(data: bytes, has_pending: bool) -> int:
    """How many characters end in UTF-8 text that may begin and end inside one."""
    if not data:
        return 0
    num_begun = sum(byte & 0xC0 != 0x80 for byte in data)
    return num_begun + (not begins_character(data)) - has_pending
