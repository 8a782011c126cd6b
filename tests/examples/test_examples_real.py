"""The examples on the default model: their output is what a reader would call right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from espalier.lang.config import set_default_backend
from espalier.lang.usage import UsageLog, record_usage
from espalier.runtime import Engine

from .conftest import load


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, max_total_tokens=8192) as engine:
        yield engine


class Shown:
    """Runs an example's main and keeps what it printed and cost."""

    def __init__(self, engine: Engine, capsys: pytest.CaptureFixture[str]) -> None:
        self._engine, self._capsys = engine, capsys
        self.log: UsageLog | None = None

    def __call__(self, name: str) -> str:
        set_default_backend(self._engine)
        try:
            with record_usage() as self.log:
                load(name).main()
        finally:
            set_default_backend(None)
        return self._capsys.readouterr().out

    @property
    def hit_rate(self) -> float:
        assert self.log is not None
        return self.log.usage.hit_rate


@pytest.fixture
def shown(engine: Engine, capsys: pytest.CaptureFixture[str]) -> Shown:
    engine.flush_cache()
    return Shown(engine, capsys)


def test_quickstart_knows_capitals_and_languages(shown: Shown) -> None:
    assert shown("quickstart") == (
        "The capital of France is Paris. People speak French.\n"
        "The capital of Japan is Tokyo. People speak Japanese.\n"
        "The capital of Egypt is Cairo. People speak Arabic.\n"
        "The capital of Germany is Berlin. People speak German.\n"
    )


def test_extract_finds_product_quantity_and_customer(shown: Shown) -> None:
    assert shown("extract") == (
        "Maria wants 12 x apples\nTom wants 3 x coffee\nAnna wants 25 x bread\n"
    )
    assert shown.log is not None
    usage = shown.log.usage
    assert usage.forced_tokens > usage.generated_tokens / 2


def test_few_shot_sorts_sentences_and_finds_facts(shown: Shown) -> None:
    lines = shown("few_shot").splitlines()
    topics = {line[11:]: line.split()[0] for line in lines[1:7]}
    assert topics["A whale is the largest creature in the sea."] == "animals"
    assert topics["Snow fell on the hills all day."] == "weather"
    assert "  1836: Charles Darwin in England" in lines
    assert "  1815: Ada Lovelace in London" in lines
    assert shown.hit_rate > 0.7


def test_react_agent_finds_the_numbers(shown: Shown) -> None:
    out = shown("react_agent")
    assert [line for line in out.splitlines() if line.startswith("=>")] == [
        "=> 48", "=> 120", "=> 28",
    ]  # fmt: skip
    assert shown.hit_rate > 0.9


def test_multi_turn_reuses_its_history(shown: Shown) -> None:
    out = shown("multi_turn")
    for city in ("Paris", "Tokyo", "Cairo"):
        assert city in out
    assert shown.hit_rate > 0.5
