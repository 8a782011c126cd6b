"""Plans against what an engine then counts, on a tiny random model."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.plan.recorded import RecordingBackend

import espalier as sgl
from espalier import gen, select
from espalier.plan.model import PlannedModel
from espalier.types import Usage

TEXTS = ["Once upon a time", " there was", "\nAnswer:", " and", ". ", "x"]
CHOICES = [["yes", "no"], ["alpha", "alphabet", "beta"], [" one", " two", " three"]]


@pytest.fixture(scope="module")
def engine(tiny_folder: Path) -> Iterator[sgl.Engine]:
    with sgl.Engine(tiny_folder, max_total_tokens=4096, num_threads=1) as engine:
        yield engine


def write(s: sgl.ProgramState, rng: random.Random, depth: int, path: str) -> None:
    """Appends random things; variables are named by their place, so that each has one call."""
    for step in range(rng.randint(1, 3)):
        name = f"{path}{step}"
        s += rng.choice(TEXTS) + rng.choice(TEXTS)
        kind = rng.choice(["gen", "select", "samples", "form", "fork", "role"])
        if kind == "gen":
            s += gen(name, max_tokens=rng.randint(1, 8), temperature=0)
        elif kind == "samples":
            s += gen(name, max_tokens=4, n=2)
        elif kind == "form":
            s += gen(
                name, max_tokens=20, regex=rng.choice(["[ab]{2,4}c", "Year: [0-9]{4}", "(ab)+!"])
            )
        elif kind == "select":
            s += select(name, choices=rng.choice(CHOICES))
        elif kind == "role":
            s += sgl.user("hi") + sgl.assistant(gen(name, max_tokens=5, temperature=0))
        elif depth:
            forks = s.fork(rng.randint(1, 3))
            for number, fork in enumerate(forks):
                write(fork, rng, depth - 1, f"{name}_{number}_")
            forks.join()


@sgl.function
def random_program(s: sgl.ProgramState, seed: int) -> None:
    s += "A shared beginning of all rows. "
    write(s, random.Random(seed), 2, f"row{seed}_")


def measured(engine: sgl.Engine, seeds: list[int]) -> tuple[Usage, dict[str, Any]]:
    """What the engine counts for some rows, one call at a time, and the statements for a plan."""
    items = [{"seed": seed} for seed in seeds]
    engine.flush_cache()
    recorder = RecordingBackend(engine.endpoint)
    with sgl.record_usage() as log:
        random_program.run_batch(items, backend=recorder, num_threads=1, use_thread=False)
    stated = recorder.recorded.stated(["*"])
    # Texts of forms and choices; free texts may end inside a character, so that lengths say more.
    forms = {
        name: texts
        for name, texts in stated["assume"].items()
        if name in recorder.recorded.choices or all(text.isascii() for text in texts)
    }
    return log.usage, {"assume": forms, "output_tokens": stated["output_tokens"]}


@pytest.mark.parametrize("first_seed", range(0, 40, 2))
def test_random_programs_cost_what_the_engine_counts(
    engine: sgl.Engine, tiny: PlannedModel, first_seed: int
) -> None:
    seeds = [first_seed, first_seed + 1, first_seed]
    usage, stated = measured(engine, seeds)
    plan = random_program.plan(
        [{"seed": seed} for seed in seeds], model=tiny, cache_tokens=4096, **stated
    )
    assert plan.total.requests == usage.calls
    assert plan.total.prompt_tokens == usage.prompt_tokens
    assert plan.total.generated_tokens == usage.generated_tokens
    assert plan.total.forced_tokens == usage.forced_tokens
    assert plan.total.computed_tokens == usage.computed_tokens
    assert plan.needed_tokens <= plan.total.computed_tokens
    assert plan.needed_tokens <= plan.distinct_tokens


@sgl.function
def conversation(s: sgl.ProgramState, questions: list[str]) -> None:
    s += "A talk about many things, with short answers.\n"
    for number, question in enumerate(questions):
        s += f"Q: {question}\nA:"
        s += gen(f"a{number}", max_tokens=6, temperature=0) + "\n"


@pytest.mark.parametrize("cache_tokens", [150, 190, 260, 400])
def test_a_small_cache_evicts_as_the_engine_does(
    tiny_folder: Path, tiny: PlannedModel, cache_tokens: int
) -> None:
    rng = random.Random(cache_tokens)
    rows = [
        {"questions": [rng.choice(["who", "where", "when is it"]) for _ in range(4)]}
        for _ in range(12)
    ]
    with sgl.Engine(tiny_folder, max_total_tokens=cache_tokens, num_threads=1) as engine:
        recorder = RecordingBackend(engine.endpoint)
        with sgl.record_usage() as log:
            conversation.run_batch(rows, backend=recorder, num_threads=1, use_thread=False)
    lengths = recorder.recorded.stated([])["output_tokens"]
    plan = conversation.plan(rows, model=tiny, cache_tokens=cache_tokens, output_tokens=lengths)
    assert plan.total.prompt_tokens == log.usage.prompt_tokens
    assert plan.total.computed_tokens == log.usage.computed_tokens
    if cache_tokens < 200:
        assert plan.num_evicted > 0
        assert plan.unlimited_computed_tokens < plan.total.computed_tokens


def test_parts_are_calls_by_variable_and_line(tiny: PlannedModel) -> None:
    @sgl.function
    def two(s: sgl.ProgramState) -> None:
        s += "Q:" + gen("first", max_tokens=5) + select("second", choices=["a", "b"])
        s += gen(max_tokens=3)

    plan = two.plan(model=tiny, cache_tokens="unlimited", output_tokens=4)
    line = two.func.__code__.co_firstlineno + 2
    assert [(part.name, part.kind) for part in plan.parts] == [
        ("first", "gen"), ("second", "select"), ("(unnamed)", "gen"),
    ]  # fmt: skip
    assert [part.place for part in plan.parts] == [
        f"test_plan.py:{line}", f"test_plan.py:{line}", f"test_plan.py:{line + 1}",
    ]  # fmt: skip
    assert [part.counts.generated_tokens for part in plan.parts] == [4, 0, 3]
    assert plan.cache_tokens is None
    flow = {
        (None if a is None else a.variable, None if b is None else b.variable): number
        for (a, b), number in plan.counts.flow.items()
    }
    assert flow == {(None, "first"): 1, ("first", "second"): 1, ("second", None): 1}


def test_stated_texts_are_read_and_decide_the_course(tiny: PlannedModel) -> None:
    @sgl.function
    def loop(s: sgl.ProgramState) -> None:
        s += "Go"
        for _ in range(5):
            s += " on?" + select("more", choices=[" yes", " no"]) + gen("word", max_tokens=4)
            if s["more"] == " no":
                break

    plan = loop.plan([{}, {}], model=tiny, assume={"more": ["yes", "no", "no"], "word": "x"})
    assert {part.name: part.counts.requests for part in plan.parts} == {"more": 3, "word": 3}
    assert plan.read_names == ("more",)
    assert plan.parts[0].assumed == "stated text"
    assert "The program reads more" in str(plan)


@pytest.mark.parametrize("cut", [False, True])
def test_lengths_hold_in_the_next_prompt(tiny: PlannedModel, cut: bool) -> None:
    @sgl.function
    def two(s: sgl.ProgramState) -> None:
        s += "abc" + gen("x", max_tokens=7 if cut else 20) + "d" + gen("y", max_tokens=1)

    plan = two.plan(model=tiny, output_tokens={"x": 7})
    # An answer that ends by itself has an end token, which is no part of the text.
    assert [part.counts.prompt_tokens for part in plan.parts] == [3, 3 + (7 if cut else 6) + 1]


def test_typed_values_can_be_read(tiny: PlannedModel) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
        "required": ["name", "size"],
        "additionalProperties": False,
    }

    @sgl.function
    def typed(s: sgl.ProgramState) -> Any:
        s += "A number: " + sgl.gen_int("number", max_tokens=8)
        s += "\nA thing: " + gen("thing", json_schema=schema, max_tokens=64)
        return int(s["number"]) + s["thing"]["size"]

    plan = typed.plan(model=tiny)
    assert [part.assumed for part in plan.parts] == ["a shortest text of the form"] * 2
    thing = plan.parts[1].counts
    least = len(json.dumps({"name": "", "size": 1}, separators=(",", ":")))
    assert thing.generated_tokens in (least, least + 1)  # a digit may be followed by more
    assert thing.forced_tokens == len('{"name":"') + len(',"size":')


def test_async_programs_and_nested_ones_are_planned(tiny: PlannedModel) -> None:
    @sgl.function
    def inner(s: sgl.ProgramState) -> None:
        s += "inner" + gen("i", max_tokens=2)

    @sgl.function
    async def outer(s: sgl.ProgramState, number: int) -> None:
        s += f"outer {number}" + gen("o", max_tokens=2)
        await s.aget("o")
        await inner.arun()

    plan = outer.plan([{"number": 1}, {"number": 2}], model=tiny)
    assert {part.name: part.counts.requests for part in plan.parts} == {"o": 2, "i": 2}


def test_a_plan_repeats_itself(tiny: PlannedModel) -> None:
    items = [{"seed": seed} for seed in range(6)]
    plans = [random_program.plan(items, model=tiny, cache_tokens=700) for _ in range(2)]
    assert plans[0].to_json() == plans[1].to_json()


def test_a_program_without_calls_says_so(tiny: PlannedModel) -> None:
    @sgl.function
    def silent(s: sgl.ProgramState) -> None:
        s += "nothing"

    plan = silent.plan(model=tiny)
    assert (plan.parts, plan.optimal_hit_rate, plan.total.hit_rate) == ((), 0.0, 0.0)
    assert "makes no call" in str(plan)


def test_text_fits_into_eighty_columns(tiny: PlannedModel) -> None:
    plan = random_program.plan([{"seed": 3}] * 4, model=tiny)
    assert max(map(len, str(plan).splitlines())) <= 80
