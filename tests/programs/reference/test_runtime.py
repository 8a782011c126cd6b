"""T-120 to T-126: complaints about the runtime that show in a program, on the real model."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier.errors import GenerationError
from espalier.lang.api import assistant, gen, separate_reasoning, user
from espalier.lang.function import function
from espalier.lang.state import ProgramState
from espalier.runtime import Engine

POOL = 2048


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, max_total_tokens=POOL) as engine:
        yield engine


def stats(engine: Engine) -> dict[str, Any]:
    found: dict[str, Any] = engine.get_server_info()["stats"]
    return found


@function
def story(s: ProgramState, hero: str) -> None:
    s += "A short story for children, in simple words, about a day at the sea. "
    s += f"The hero is {hero}. It begins:" + gen("start", max_tokens=6)
    s += " Then" + gen("middle", max_tokens=6)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_t120_cached_and_uncached_outputs_are_equal(engine: Engine, temperature: float) -> None:
    items = [{"hero": hero} for hero in ("a cat", "a dog", "a crab")]

    def texts(num_threads: int, *, flush: bool = False) -> list[str]:
        if flush:
            assert engine.flush_cache()
        states = story.run_batch(
            items,
            backend=engine,
            temperature=temperature,
            seed=3,
            num_threads=num_threads,
            generator_style=True,
        )
        return [state.text() for state in states]

    def uncached(hero: str) -> str:
        assert engine.flush_cache()
        state = story.run(hero=hero, backend=engine, temperature=0, use_thread=False)
        assert state.get_meta_info("start")["cached_tokens"] == 0
        return state.text()

    first = texts(1, flush=True)  # each program finds the start of the one before
    assert texts(1) == first  # everything is cached
    assert texts(4) == first  # in a crowd
    assert texts(4, flush=True) == first
    if not temperature:
        assert [uncached(item["hero"]) for item in items] == first


def test_t121_generated_tokens_are_reused_in_the_next_turn(engine: Engine) -> None:
    @function
    def turns(s: ProgramState) -> None:
        for turn in range(3):
            s += user(f"Question {turn}?")
            s += assistant(gen(f"answer{turn}", max_tokens=12, ignore_eos=True))

    assert engine.flush_cache()
    state = turns.run(backend=engine, temperature=0)
    for turn in (1, 2):
        before, now = (state.get_meta_info(f"answer{number}") for number in (turn - 1, turn))
        # The last generated token is computed by the call that goes on from it.
        num_known = before["prompt_tokens"] + before["completion_tokens"] - 1
        assert now["cached_tokens"] >= num_known


def test_t122_dropped_reasoning_does_not_fill_the_cache_for_good(smollm2_path: Path) -> None:
    @function
    def thinking(s: ProgramState, number: int) -> None:
        s += user(f"Think about {number}.") + assistant(
            separate_reasoning(gen("x", max_tokens=48, ignore_eos=True), "deepseek-r1")
        )

    # The reasoning of all programs is more than the pool: nothing of it is held.
    pool = 512
    with Engine(smollm2_path, max_total_tokens=pool) as engine:
        states = thinking.run_batch([{"number": number} for number in range(14)], backend=engine)
        assert sum(state.usage().generated_tokens for state in states) > pool
        assert all(state.error() is None for state in states)
        held = stats(engine)
        assert held["slots_locked"] == 0
        assert held["slots_free"] + held["slots_evictable"] == held["slots_total"] == pool
        assert engine.flush_cache()
        assert stats(engine)["slots_free"] == pool


def test_t123_no_request_waits_without_bound_while_others_share_a_prefix(
    smollm2_path: Path,
) -> None:
    # Batches of programs whose long prefix is cached keep coming; the stranger gets its turn.
    @function
    def asks(s: ProgramState, text: str) -> None:
        s += text + gen("x", max_tokens=1, ignore_eos=True)

    prefix = "One and the same long beginning of many prompts. "
    with Engine(smollm2_path, max_total_tokens=POOL, max_running_requests=1) as engine:
        asks.run(text=prefix, backend=engine).sync()
        with asks.run(text="A stranger.", backend=engine) as stranger:
            num_after = 0
            deadline = time.monotonic() + 60
            crowd = [asks.run(text=f"{prefix}{number}", backend=engine) for number in range(4)]
            while "running" in repr(stranger) and time.monotonic() < deadline:
                crowd.pop(0).sync()
                crowd.append(asks.run(text=f"{prefix}{num_after}!", backend=engine))
                num_after += 1
            assert isinstance(stranger["x"], str)
        for state in crowd:
            state.sync()
        bound = engine.get_server_info()["options"]["max_passed_over"]
        assert num_after <= bound + len(crowd) + 2


def test_t125_jump_forward_changes_no_greedy_output_and_warns_of_nothing(
    smollm2_path: Path, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "number": {"type": "integer", "minimum": 0, "maximum": 999},
            "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 3},
        },
        "required": ["name", "number", "tags"],
        "additionalProperties": False,
    }

    @function
    def facts(s: ProgramState, style: str) -> None:
        s += "Facts as JSON: " + gen("x", json_schema=schema, whitespace=style, max_tokens=80)
        s += "\nAn address: " + gen("ip", regex=r"\d{1,3}(\.\d{1,3}){3}", max_tokens=16)

    items = [{"style": style} for style in ("compact", "spaced", "pretty")]

    def texts(backend: Engine) -> tuple[list[str], int]:
        states = facts.run_batch(items, backend=backend, temperature=0)
        return [state.text() for state in states], sum(s.usage().forced_tokens for s in states)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jumped, num_forced = texts(engine)
        with Engine(smollm2_path, max_total_tokens=POOL, jump_forward=False) as slow:
            plain, _ = texts(slow)
    assert jumped == plain
    assert num_forced > 10
    assert not caught
    assert not caplog.records
    for text in jumped:  # bounded: no run of whitespace beyond what json.dumps writes
        value = text.removeprefix("Facts as JSON: ").partition("\nAn address: ")[0]
        assert not re.search(r"[ \n]{8,}", value)
        json.loads(value)


def test_t125_a_grammar_that_is_too_large_is_refused_and_blocks_nobody(engine: Engine) -> None:
    @function
    def asks(s: ProgramState, is_large: bool) -> None:
        regex = "(a|b)*a(a|b){24}c" if is_large else "[a-z]{3}"
        s += "Letters: " + gen("x", regex=regex, max_tokens=4)

    started = time.monotonic()
    states = asks.run_batch(
        [{"is_large": number == 0} for number in range(5)], backend=engine, on_error="return"
    )
    assert time.monotonic() - started < 60
    error = states[0].error()
    assert error is None or isinstance(error, GenerationError)  # lazily built, or refused
    for state in states[1:]:
        assert re.fullmatch("[a-z]{1,3}", state["x"])


_PLAIN = """
import sys
import espalier as sgl

@sgl.function
def program(s):
    s += "One, two," + sgl.gen("x", max_tokens=2, temperature=0)

with sgl.Engine(sys.argv[1], max_total_tokens=256) as engine:
    print(repr(program.run(backend=engine)["x"]))
unwanted = {"torch", "transformers", "triton", "cuda", "vllm", "sglang", "pydantic", "jsonschema"}
print(sorted(unwanted.intersection(sys.modules)))
"""


def test_t126_it_runs_on_the_processor_without_any_gpu_library(smollm2_path: Path) -> None:
    source = str(Path(espalier.__file__).parents[1])  # the package that runs here
    paths = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", _PLAIN, str(smollm2_path)],
        env={**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    text, unwanted = done.stdout.splitlines()
    assert text.startswith("' ")
    assert unwanted == "[]"
    assert done.stderr == ""
