"""A stand-in for the package llama_cpp: cells and sequences as llama.cpp has them, and no model.

The next token of a sequence is a function of all its tokens and their positions, so that a cell too
many, too few or in the wrong place shows in what is decoded.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

VOCAB = 97
END = 0  # the token that ends a text


def next_token(tokens: list[int]) -> int:
    """What follows these tokens."""
    return (sum((place + 1) * token for place, token in enumerate(tokens)) + 7) % VOCAB


def continuation(prompt: list[int], num_tokens: int) -> list[int]:
    """The tokens that follow a prompt, one after the other."""
    tokens = list(prompt)
    for _ in range(num_tokens):
        tokens.append(next_token(tokens))
    return tokens[len(prompt) :]


class TokenData(ctypes.Structure):
    """llama_token_data."""

    _fields_ = (("id", ctypes.c_int32), ("logit", ctypes.c_float), ("p", ctypes.c_float))


class TokenDataArray(ctypes.Structure):
    """llama_token_data_array."""

    _fields_ = (
        ("data", ctypes.POINTER(TokenData)),
        ("size", ctypes.c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", ctypes.c_bool),
    )


@dataclass
class Grammar:
    """Numbers that may follow each other, separated by blanks; after the last the text ends."""

    allowed: list[int]
    place: int = 0


@dataclass
class Cell:
    """A token at a position, of one or more sequences."""

    position: int
    token: int
    owners: set[int] = field(default_factory=set)


class FakeLlama:
    """The functions of the package that the adapter calls."""

    __version__ = "0"
    llama_token_data = TokenData
    llama_token_data_array = TokenDataArray

    def __init__(self) -> None:
        self.num_grammars = 0
        self.sizes: list[int] = []  # of the candidates that grammars were asked about
        self.cells: list[Cell] = []
        self.most_cells = 0
        self._logits: Any = None

    def __getattr__(self, name: str) -> Any:
        """Functions that only make or free something."""
        if not name.startswith(("llama_", "ggml_")):
            raise AttributeError(name)
        return lambda *_: SimpleNamespace()

    def llama_vocab_n_tokens(self, _: Any) -> int:
        return VOCAB

    def llama_print_system_info(self) -> bytes:
        return b"AMX_INT8 = 1"

    def llama_batch_init(self, num_tokens: int, *_: int) -> Any:
        return SimpleNamespace(
            n_tokens=0,
            token=[0] * num_tokens,
            pos=[0] * num_tokens,
            n_seq_id=[0] * num_tokens,
            seq_id=[[0] for _ in range(num_tokens)],
            logits=[False] * num_tokens,
        )

    def llama_memory_clear(self, *_: Any) -> None:
        self.cells.clear()

    def llama_memory_seq_pos_min(self, _: Any, row: int) -> int:
        return min((cell.position for cell in self.cells if row in cell.owners), default=-1)

    def llama_memory_seq_rm(self, _: Any, row: int, first: int, __: int) -> bool:
        for cell in self.cells:
            if cell.position >= first:
                cell.owners.discard(row)
        self.cells = [cell for cell in self.cells if cell.owners]
        return True

    def llama_memory_seq_cp(self, _: Any, source: int, row: int, first: int, end: int) -> None:
        for cell in self.cells:
            if source in cell.owners and first <= cell.position < end:
                cell.owners.add(row)

    def llama_decode(self, _: Any, batch: Any) -> int:
        wanted = []
        for index in range(batch.n_tokens):
            row = batch.seq_id[index][0]
            self.cells.append(Cell(batch.pos[index], batch.token[index], {row}))
            if batch.logits[index]:
                wanted.append(next_token(self._tokens(row)))
        self.most_cells = max(self.most_cells, len(self.cells))
        self._logits = (ctypes.c_float * (VOCAB * max(1, len(wanted))))()
        for place, token in enumerate(wanted):
            self._logits[place * VOCAB + token] = 1.0
        return 0

    def llama_get_logits(self, _: Any) -> Any:
        return self._logits

    def llama_sampler_init_grammar(self, _: Any, text: bytes, root: bytes) -> Grammar | None:
        if root != b"root" or not re.fullmatch(rb"[0-9]+( [0-9]+)*", text):
            return None
        self.num_grammars += 1
        return Grammar([int(part) for part in text.split()])

    def llama_sampler_apply(self, grammar: Grammar, array: Any) -> None:
        candidates = array._obj
        self.sizes.append(candidates.size)
        rest = [*grammar.allowed, END][grammar.place]
        for index in range(candidates.size):
            if candidates.data[index].id != rest:
                candidates.data[index].logit = float("-inf")

    def llama_sampler_accept(self, grammar: Grammar, token: int) -> None:
        assert token == grammar.allowed[grammar.place]
        grammar.place += 1

    def llama_sampler_free(self, _: Grammar) -> None:
        self.num_grammars -= 1

    def llama_vocab_is_eog(self, _: Any, token: int) -> bool:
        return token == END

    def _tokens(self, row: int) -> list[int]:
        own = sorted(
            (cell for cell in self.cells if row in cell.owners), key=lambda cell: cell.position
        )
        assert [cell.position for cell in own] == list(range(len(own))), "a hole or a double"
        return [cell.token for cell in own]
