"""The tokenizer of a model: text to token ids and back. Knows no file format and no template."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from espalier.errors import PromptError
from espalier.tokenizer.incremental import IncrementalDecoder
from espalier.tokenizer.special_tokens import Fragment, Span, SpecialToken, SpecialTokens
from espalier.tokenizer.vocabulary import SpacePrefix, TokenKind, Vocabulary

_LINE_START = re.compile(rb"\n[A-Za-z]")
_CONTROL_KINDS = (TokenKind.CONTROL, TokenKind.UNKNOWN)


class TextEncoder(Protocol):
    """Encodes text between special tokens. Safe to use from several threads."""

    def encode(self, text: str, *, adds_space: bool) -> list[int]:
        """Token ids of a text that is not empty; never those of control tokens.

        `adds_space`: the space that the scheme puts before a text is put before this one.
        """
        ...


class Tokenizer:
    """Text to token ids and back, for one vocabulary. Immutable, safe to share between threads.

    Text that spells a control token (a turn marker, BOS, an end token) stays plain text unless
    the caller asks for the token. User-defined tokens (such as runs of newlines) are ordinary text
    that has a token of its own; they are found in every text.
    """

    def __init__(
        self, vocabulary: Vocabulary, encoder: TextEncoder, special: Iterable[SpecialToken]
    ) -> None:
        self.vocabulary = vocabulary
        self.vocab_size: int = len(vocabulary.texts)
        self.bos_id: int | None = vocabulary.bos_id
        self.eos_id: int | None = vocabulary.eos_id
        self.eos_ids: frozenset[int] = vocabulary.eos_ids
        self.pad_id: int | None = vocabulary.pad_id
        self.unk_id: int | None = vocabulary.unk_id
        self.add_bos: bool = vocabulary.add_bos and vocabulary.bos_id is not None
        self._encoder = encoder
        self._special = SpecialTokens(special)
        self._by_text: dict[str, int] = {}
        self._splits_at_lines: bool | None = None  # found when it is asked for
        self._control_ids = frozenset(vocabulary.ids_of(*_CONTROL_KINDS))

    def splits_at_lines(self) -> bool:
        """Whether a text cut before lines gives its tokens part by part.

        A cut is meant between a line break and an ASCII letter, where a character that is no space
        stands before the line break; the parts after it are encoded with `at_start` false. True
        only where that is known of the scheme, and no token reaches across such a cut.
        """
        if self._splits_at_lines is None:
            vocabulary = self.vocabulary
            self._splits_at_lines = (
                getattr(self._encoder, "splits_at_lines", False)
                # A line break may be a token of its own, and so begin a fragment.
                and vocabulary.space_prefix is not SpacePrefix.PER_FRAGMENT
                and not any(map(_LINE_START.search, vocabulary.pieces))
            )
        return self._splits_at_lines

    def encode(
        self,
        text: str,
        *,
        allow_special: bool = False,
        add_bos: bool | None = None,
        at_start: bool = True,
    ) -> list[int]:
        """Token ids of a text.

        `allow_special`: text that spells a control token becomes that token. `add_bos`: None for
        the model's default; a BOS is never added before a BOS. `at_start`: false for text that
        goes on after other tokens: no BOS by default, and no space that SentencePiece would put
        before a text. Raises PromptError for text with lone surrogates.
        """
        pieces = ((text, allow_special),)
        return self.encode_pieces(pieces, add_bos=add_bos, at_start=at_start)

    def encode_pieces(
        self,
        pieces: Sequence[tuple[str, bool]],
        *,
        add_bos: bool | None = None,
        at_start: bool = True,
    ) -> list[int]:
        """Token ids of the joined pieces, tokenised together; otherwise as `encode`.

        Each piece says whether its text may spell control tokens. A control token is taken where
        its whole text lies in neighbouring pieces that allow it.
        """
        text = "".join(piece for piece, _ in pieces)
        _check_text(text)
        ids = self._encode_fragments(text, _allowed_spans(pieces), at_start)
        if add_bos is None:
            add_bos = self.add_bos and at_start
        if add_bos and self.bos_id is None:
            raise PromptError("add_bos is True, but the model's vocabulary has no BOS token.")
        if add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def _encode_fragments(self, text: str, allowed: list[Span], at_start: bool) -> list[int]:
        ids: list[int] = []
        prefix = self.vocabulary.space_prefix
        fragments: list[Fragment] = self._special.split(text, allowed)
        for index, fragment in enumerate(fragments):
            if isinstance(fragment, int):
                ids.append(fragment)
                continue
            adds_space = at_start if index == 0 else prefix is SpacePrefix.PER_FRAGMENT
            ids += self._encoder.encode(
                text[slice(*fragment)],
                adds_space=adds_space and prefix is not SpacePrefix.NEVER,
            )
        return ids

    def decode(
        self,
        token_ids: Iterable[int],
        *,
        skip_special_tokens: bool = True,
        at_start: bool | None = None,
    ) -> str:
        """Text of tokens; bytes that are no UTF-8 become U+FFFD.

        `at_start`: the tokens begin a text, so that a space that encoding put before it is taken
        away. None: true only after a BOS, which is right for tokens that continue a text.
        Raises PromptError for an id outside the vocabulary.
        """
        data = self.decode_bytes(
            token_ids, skip_special_tokens=skip_special_tokens, at_start=at_start
        )
        return data.decode("utf-8", "replace")

    def decode_bytes(
        self,
        token_ids: Iterable[int],
        *,
        skip_special_tokens: bool = True,
        at_start: bool | None = None,
    ) -> bytes:
        """Bytes of tokens, joined; otherwise as `decode`."""
        decoder = self.decoder(skip_special_tokens=skip_special_tokens, at_start=at_start)
        return b"".join(map(decoder.bytes_of, token_ids))

    def decoder(
        self, *, skip_special_tokens: bool = True, at_start: bool | None = None
    ) -> IncrementalDecoder:
        """A decoder of one sequence, token by token; arguments as those of `decode`."""
        has_prefix = self.vocabulary.space_prefix is not SpacePrefix.NEVER
        text_start = self.bos_id if has_prefix and at_start is not False else None
        hidden = self._control_ids if skip_special_tokens else frozenset[int]()
        size, pieces = self.vocab_size, self.vocabulary.pieces

        def read(token_id: int) -> tuple[bytes | None, bool]:
            if not 0 <= token_id < size:
                self._check_id(token_id)
            return None if token_id in hidden else pieces[token_id], token_id == text_start

        return IncrementalDecoder(read, drops_space=bool(at_start) and has_prefix)

    def token_bytes(self, token_id: int) -> bytes:
        """Bytes that a token stands for; of a control token, its text. Raises PromptError."""
        self._check_id(token_id)
        return self.vocabulary.pieces[token_id]

    def is_control(self, token_id: int) -> bool:
        """True for tokens that are no text: turn markers, BOS, end, unknown, padding."""
        self._check_id(token_id)
        return token_id in self._control_ids

    def token_text(self, token_id: int) -> str:
        """Text of a token for tables; parts of a character are shown as U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", "replace")

    def token_id(self, text: str) -> int | None:
        """The token that the vocabulary's file spells `text`, or None."""
        if not self._by_text:
            texts = self.vocabulary.texts
            self._by_text = {text: token_id for token_id, text in enumerate(texts)}
        return self._by_text.get(text)

    def _check_id(self, token_id: int) -> None:
        if not 0 <= token_id < self.vocab_size:
            raise PromptError(
                f"the token id {token_id} is outside the vocabulary; ids from 0 to "
                f"{self.vocab_size - 1} are allowed."
            )


def _check_text(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PromptError(
            f"the text holds the lone surrogate {text[error.start]!r} at character "
            f"{error.start}; Unicode text is allowed. Decode bytes with errors='replace'."
        ) from None


def _allowed_spans(pieces: Sequence[tuple[str, bool]]) -> list[Span]:
    """Spans of the joined text that may spell control tokens, neighbours joined."""
    spans: list[Span] = []
    start = 0
    for piece, allow_special in pieces:
        end = start + len(piece)
        if allow_special and piece:
            if spans and spans[-1][1] == start:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        start = end
    return spans
