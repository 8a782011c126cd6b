"""What the peers of json_decoding.py are asked: rows of prompts with their forms, as token ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.constrain.gbnf import notations
from bench.constrain.workloads import Work, works
from bench.peers.protocol import Form, Setup

Encode = Callable[[str], list[int]]


@dataclass(frozen=True, eq=False)
class Job:
    """Rows of one kind of work, which a peer is given at once.

    Attributes:
        todo: the rows.
        is_cached: every round has the same prompts, which the peers' prefix caches hold by then.
            Otherwise those of a round begin in their own way, so that only rows of one call share.
    """

    kind: str
    todo: tuple[Work, ...]
    is_cached: bool

    @property
    def name(self) -> str:
        return f"{self.kind}, {len(self.todo)} rows"

    @property
    def num_tokens(self) -> int:
        """The most tokens of an output."""
        return max(work.max_new_tokens for work in self.todo)

    @property
    def forms(self) -> list[Form]:
        return [notations(work) for work in self.todo]

    def prompts(self, encode: Encode, round_number: int) -> list[list[int]]:
        """Token ids of each row."""
        start = "" if self.is_cached else f"({round_number}) "
        return [encode(start + work.prompt) for work in self.todo]

    def setup(self, encode: Encode, model: str, num_threads: int, num_rounds: int) -> Setup:
        """Sizes that serve all rounds, with the prefix cache on, as it is by default."""
        longest = max(
            len(prompt)
            for number in range(num_rounds + 1)
            for prompt in self.prompts(encode, number)
        )
        rows = len(self.todo)
        context = longest + self.num_tokens + 1
        return Setup(model, num_threads, rows, context, rows * context, prefix_cache=True)


def jobs(kinds: Sequence[str], rows: Sequence[int], is_cached: bool) -> list[Job]:
    """All kinds with all numbers of rows."""
    return [Job(kind, tuple(works(kind, count)), is_cached) for kind in kinds for count in rows]
