"""Token ids for benches, cut from one text; nothing here is random from run to run."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Protocol

_FILE = Path("text") / "ulysses_first200k.md"
_WORDS = [
    "river",
    "stone",
    "window",
    "morning",
    "letter",
    "garden",
    "paper",
    "silver",
    "harbour",
    "winter",
    "candle",
    "market",
    "bridge",
    "kettle",
    "orchard",
    "thunder",
    "pocket",
    "mirror",
    "station",
    "velvet",
    "copper",
    "island",
    "feather",
    "lantern",
    "meadow",
]
_VERBS = [
    "carried",
    "watched",
    "forgot",
    "mended",
    "followed",
    "painted",
    "counted",
    "buried",
    "answered",
    "borrowed",
]
_FALLBACK_SENTENCES = 12_000


def text_file() -> Path | None:
    """The shared test text, where this machine has it; `ESPALIER_TEST_DATA` names its folder."""
    given = os.environ.get("ESPALIER_TEST_DATA")
    folder = Path(given) if given else Path(__file__).resolve().parents[3] / "shared" / "data"
    return folder / _FILE if (folder / _FILE).is_file() else None


def fallback_text() -> str:
    """Sentences made of a few words, the same each time; for machines without the test text."""
    source = random.Random(0)
    sentences = []
    for number in range(_FALLBACK_SENTENCES):
        first, second, third = source.sample(_WORDS, 3)
        verb = source.choice(_VERBS)
        sentences.append(f"The {first} by the {second} {verb} the {third} {number % 97} times.")
    return " ".join(sentences)


def bench_text(given: Path | None) -> tuple[str, str]:
    """The text to cut from, and a name for the report."""
    path = given if given is not None else text_file()
    if path is None:
        return fallback_text(), "generated sentences"
    return path.read_text(encoding="utf-8"), path.name


class PromptSource(Protocol):
    """Where the prompts of a round come from; see Prompts.cut."""

    def cut(
        self, work: str, round_number: int, rows: int, length: int, shared: int
    ) -> list[list[int]]: ...


class NoPrompts:
    """Stands where there are no prompts; `reason` says why."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def cut(
        self, work: str, round_number: int, rows: int, length: int, shared: int
    ) -> list[list[int]]:
        """Raises ValueError with the reason."""
        raise ValueError(self._reason)


class Prompts:
    """Prompts of given lengths; other rounds and rows get other places of the text."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = ids

    def cut(
        self, work: str, round_number: int, rows: int, length: int, shared: int
    ) -> list[list[int]]:
        """`rows` prompts of `length` tokens, the first `shared` of which are the same in all.

        Raises ValueError where the text is shorter than a prompt.
        """
        if length >= len(self._ids):
            raise ValueError(f"the text has {len(self._ids)} tokens; over {length} are needed.")
        source = random.Random(f"{work}/{round_number}")
        prefix = self._piece(source, shared)
        own = length - shared
        starts = source.sample(range(len(self._ids) - own), rows)
        return [prefix + self._ids[start : start + own] for start in starts]

    def _piece(self, source: random.Random, length: int) -> list[int]:
        start = source.randrange(len(self._ids) - length)
        return self._ids[start : start + length]
