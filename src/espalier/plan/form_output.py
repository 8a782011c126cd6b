"""Outputs that have a form: which tokens an assumed text has, and how many of them are forced.

The engine's own guide (constrain/guide.py) is led along the assumed text, so that tokens come out
as the engine would have them.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TypeVar

from espalier.constrain.guide import Guide, TailChange
from espalier.constrain.shortest import shortest_bytes, single_byte_tokens
from espalier.constraint import Constraint
from espalier.engine.constraints import Constraints
from espalier.errors import UserInputError
from espalier.tokenizer.tokenizer import Tokenizer

K = TypeVar("K")
V = TypeVar("V")
MAX_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class FormOutput:
    """Tokens of a text that has a form.

    Attributes:
        text: the text that they stand for.
        token_ids: its tokens.
        num_forced: those of them that need no choice by the model.
        num_start: tokens that every output begins with.
        num_last: tokens that came with the last choice, itself included: where the output ends
            with them, none of them is ever computed.
        ends_itself: nothing may follow, so that no end token comes.
        has_form: false where the assumed text breaks the form: it is counted as free text then.
    """

    text: str
    token_ids: tuple[int, ...]
    num_forced: int
    num_start: int
    num_last: int
    ends_itself: bool
    has_form: bool


class FormOutputs:
    """Finds and remembers outputs for one tokenizer and one width of logits."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._constraints = Constraints(tokenizer, vocab_size)
        self._byte_tokens: dict[int, int] | None = None
        self._shortest: OrderedDict[Constraint, str | None] = OrderedDict()
        self._known: OrderedDict[tuple[Constraint, str, int], FormOutput] = OrderedDict()

    def shortest(self, constraint: Constraint, max_tokens: int) -> str | None:
        """A shortest text of the form; None where none is found. Raises as the engine does."""
        if constraint not in self._shortest:
            if self._byte_tokens is None:
                self._byte_tokens = single_byte_tokens(self._tokenizer)
            matcher = self._constraints.guide(constraint, max_tokens, is_canonical=False).matcher
            data = shortest_bytes(matcher, self._byte_tokens)
            self._shortest[constraint] = None if data is None else data.decode("utf-8", "replace")
            _drop_old(self._shortest)
        return self._shortest[constraint]

    def output(self, constraint: Constraint, text: str, max_tokens: int) -> FormOutput:
        """The output with that text, of at most `max_tokens` tokens. Raises as the engine does."""
        key = (constraint, text, max_tokens)
        found = self._known.get(key)
        if found is None:
            guide = self._constraints.guide(constraint, max_tokens, is_canonical=True)
            found = self._known[key] = _Follower(self._tokenizer, guide, max_tokens).follow(text)
            _drop_old(self._known)
        return found


def _drop_old(entries: OrderedDict[K, V]) -> None:
    while len(entries) > MAX_REMEMBERED:
        entries.popitem(last=False)


class _Follower:
    """Leads a guide along a text."""

    def __init__(self, tokenizer: Tokenizer, guide: Guide, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._guide = guide
        self._max_tokens = max_tokens
        self._ids: list[int] = []
        self._num_last = 1

    def follow(self, text: str) -> FormOutput:
        target = text.encode()
        self._apply(self._guide.start())
        num_start = len(self._ids)
        has_form = self._go_along(target)
        if not has_form:
            self._ids = self._encoded(target)[: self._max_tokens]
        is_whole = has_form and self._bytes() == target
        shown = text if is_whole else self._bytes().decode("utf-8", "replace")
        return FormOutput(
            shown,
            tuple(self._ids),
            self._guide.num_forced if has_form else 0,
            num_start if has_form else 0,
            self._num_last if has_form else 1,
            self._guide.must_stop if has_form else False,
            has_form,
        )

    def _go_along(self, target: bytes) -> bool:
        """Takes the tokens of the text; false where the form has another."""
        planned: list[int] = []
        while len(self._ids) < self._max_tokens:
            known = self._bytes()
            if not target.startswith(known):
                return False
            rest = target[len(known) :]
            if not rest or self._guide.must_stop:
                return not rest
            if not planned:
                planned = self._encoded(rest)
            token_id = planned.pop(0)
            try:
                change = self._guide.take(token_id)
            except UserInputError:
                return False
            self._apply(change)
            self._num_last = max(1, len(change.token_ids))
            if change.num_removed or change.token_ids != [token_id]:
                planned = []
        return target.startswith(self._bytes())

    def _apply(self, change: TailChange) -> None:
        if change.num_removed:
            del self._ids[-change.num_removed :]
        self._ids += change.token_ids

    def _bytes(self) -> bytes:
        return b"".join(map(self._tokenizer.token_bytes, self._ids))

    def _encoded(self, data: bytes) -> list[int]:
        return self._tokenizer.encode(data.decode("utf-8", "replace"), at_start=False)
