"""Compiled programs on the real model: the same tokens, no more computed, what cache() saves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lang.traceable_programs import PROGRAMS, seen

import espalier as sgl

WORDS: dict[str, Any] = {"max_new_tokens": 12, "seed": 5}


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[sgl.Engine]:
    with sgl.Engine(smollm2_path, max_total_tokens=4096) as engine:
        yield engine


@pytest.mark.parametrize("name", ["few_shot", "chat", "expert", "parallel", "forms", "nesting"])
def test_a_compiled_program_gives_the_bits_of_the_interpreted_one(
    engine: sgl.Engine, name: str
) -> None:
    function, arguments = PROGRAMS[name]
    engine.flush_cache()
    wanted = function.run(**arguments, **WORDS, backend=engine)
    wanted_seen, wanted_usage = seen(wanted), wanted.usage()
    engine.flush_cache()
    state = function.compile().run(**arguments, **WORDS, backend=engine)
    assert seen(state) == wanted_seen
    assert state.usage().computed_tokens <= wanted_usage.computed_tokens
    assert state.usage().generated_tokens == wanted_usage.generated_tokens


@sgl.function
def ask(s: Any, place: str, question: str) -> None:
    s += "Answer questions about places.\n\nPlace: " + place
    s += "\nQuestion: " + question + "\nAnswer:" + sgl.gen("answer", stop="\n")


def test_a_compiled_batch_gives_the_bits_of_the_interpreted_one(engine: sgl.Engine) -> None:
    items = [
        {"place": place, "question": question}
        for question in ("Where is it?", "Who lives there?")
        for place in ("Lima, the capital of Peru", "Oslo, the capital of Norway")
    ]
    engine.flush_cache()
    wanted = [seen(state) for state in ask.run_batch(items, **WORDS, backend=engine)]
    engine.flush_cache()
    states = ask.compile().run_batch(items, **WORDS, backend=engine)
    assert [seen(state) for state in states] == wanted
    computed = sum(state.usage().computed_tokens for state in states)
    encode = engine.tokenizer.encode
    distinct = {
        tuple(ids[: i + 1])
        for item in items
        for ids in [encode("".join(_prompt(**item)))]
        for i in range(len(ids))
    }
    assert computed <= len(distinct) + 1  # the space that ends what all share joins the place


def _prompt(place: str, question: str) -> tuple[str, ...]:
    return (
        "Answer questions about places.\n\nPlace: ",
        place,
        "\nQuestion: ",
        question,
        "\nAnswer:",
    )


def test_t103_cache_saves_the_tokens_that_it_says(engine: sgl.Engine) -> None:
    engine.flush_cache()
    num_tokens = ask.cache(engine)
    assert num_tokens > 5
    state = ask.run(place="Lima", question="Where?", **WORDS, backend=engine)
    assert state.usage().cached_tokens >= num_tokens - 1  # the last may join the next text
