"""The tokens of a model: text, kind, bytes and roles. Knows no encoding and no file format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from espalier.errors import ModelFileError


class TokenKind(IntEnum):
    """What a token is for; the numbers are those of GGUF's `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4  # text with a token of its own, matched before everything else
    UNUSED = 5
    BYTE = 6


class SpacePrefix(Enum):
    """Where a tokenizer puts a space of its own before text (SentencePiece's dummy prefix)."""

    NEVER = "never"
    AT_START = "at start"  # before the start of the whole text
    PER_FRAGMENT = "per fragment"  # also before text that follows a special token


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id, and what a few of them are for.

    Attributes:
        texts: text of each token as its file spells it.
        kinds: one TokenKind value per token.
        pieces: bytes that each token stands for; of a control token, its text in UTF-8.
        eos_id: the end token that the model's file names.
        eos_ids: every token that ends a generation.
        add_bos: a text gets the BOS token in front unless the caller says otherwise.
        space_prefix: where encoding adds a space that decoding takes away again.
    """

    texts: Sequence[str]
    kinds: bytes
    pieces: Sequence[bytes]
    bos_id: int | None = None
    eos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    pad_id: int | None = None
    unk_id: int | None = None
    add_bos: bool = False
    space_prefix: SpacePrefix = SpacePrefix.NEVER

    def __post_init__(self) -> None:
        size = len(self.texts)
        if len(self.kinds) != size or len(self.pieces) != size:
            raise ModelFileError(
                f"the vocabulary has {size} tokens, {len(self.kinds)} token types and "
                f"{len(self.pieces)} byte strings; one of each per token is needed. "
                "The file is damaged."
            )
        roles = {
            "BOS": self.bos_id,
            "EOS": self.eos_id,
            "padding": self.pad_id,
            "unknown": self.unk_id,
        }
        roles.update({f"end ({token_id})": token_id for token_id in self.eos_ids})
        for role, token_id in roles.items():
            if token_id is not None and not 0 <= token_id < size:
                raise ModelFileError(
                    f"the {role} token has the id {token_id}; ids from 0 to {size - 1} exist. "
                    "The file is damaged."
                )

    def ids_of(self, *kinds: TokenKind) -> list[int]:
        """Ids of the tokens of these kinds, ascending."""
        wanted = bytes(kinds)
        return [token_id for token_id, kind in enumerate(self.kinds) if kind in wanted]
