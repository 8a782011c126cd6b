"""T-92, T-93, and the lines of forks that are about caches, on the real model."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Iterator
from pathlib import Path

import pytest

import espalier
from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.lang.api import assistant, gen, select, user
from espalier.lang.function import function
from espalier.lang.state import ProgramState
from espalier.runtime import Engine


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, max_total_tokens=8192) as engine:
        yield engine


@function
def chat(s: ProgramState, word: str) -> None:
    s += user(f"Say {word}.")
    s += assistant(gen("a", max_tokens=4) + select("c", [" yes", " no"]))


def test_t92_an_engine_is_the_backend_of_a_program_in_this_process(engine: Engine) -> None:
    espalier.set_default_backend(engine)  # the conftest takes it back
    for state in (chat.run(word="tea"), chat.run(word="tea", backend=engine)):
        assert state["c"] in (" yes", " no")
        assert state.messages()[1]["content"].endswith(state["c"])
        assert state.text().startswith("<|im_start|>system")
        assert 1 <= state.get_meta_info("a")["completion_tokens"] <= 4
    assert espalier.get_server_info() == engine.get_server_info()
    assert multiprocessing.active_children() == []
    assert espalier.flush_cache(engine) is True


def test_t93_64_threads_use_one_engine(engine: Engine) -> None:
    @function
    def program(s: ProgramState, number: int) -> str:
        s += f"{number}, {number + 1},"
        s += gen("x", max_tokens=3, temperature=0)
        return str(s["x"])

    items = [{"number": number % 8} for number in range(64)]
    states = program.run_batch(items, backend=engine, num_threads=64)
    alone = [program.run(number=number, backend=engine).ret_value for number in range(8)]
    assert [state.ret_value for state in states] == alone * 8
    assert engine.flush_cache() is True  # nothing is left at work


def test_t93_64_threads_use_one_scripted_backend() -> None:
    def answer(call: ScriptedCall) -> str:
        return f"<{call.text}>"

    @function
    def program(s: ProgramState, number: int) -> None:
        s += f"{number}" + gen("x")
        forks = s.fork(2)
        forks += lambda index: f" {index}" + gen("y")
        forks.join()

    backend = ScriptedBackend(answer, latency_s=(0.0, 0.004))
    states = program.run_batch(
        [{"number": number} for number in range(500)], backend=backend, num_threads=64
    )
    for number, state in enumerate(states):
        start = f"{number}<{number}>"
        assert (state["x"], state["y"]) == (f"<{number}>", [f"<{start} 0>", f"<{start} 1>"])
    generated = [call for call in backend.calls if call.kind == "generate"]
    assert len(generated) == 1500
    assert backend.max_in_flight > 1


@pytest.mark.parametrize("generates_first", [False, True])
def test_t74_the_prefix_of_forks_is_computed_once_on_the_model(
    engine: Engine, generates_first: bool
) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "A list of rivers and of the seas that they end in, one a line, by length: "
        if generates_first:
            s += gen("first", max_tokens=12, ignore_eos=True)
        forks = s.fork(6)
        forks += lambda index: f"\n{index}. The" + gen("x", max_tokens=4)
        forks.join()

    assert engine.flush_cache()
    state = program.run(backend=engine, temperature=0)
    encode = engine.endpoint.encoder.encode_run
    constants = len(encode(((state.text().split(": ")[0] + ": ", True),), at_start=True))
    num_prefix = constants + (12 if generates_first else 0)
    metas = state.get_meta_info("x")
    assert all(meta["cached_tokens"] >= num_prefix - 2 for meta in metas)
    usage = state.usage()
    assert usage.prompt_tokens == usage.cached_tokens + usage.computed_tokens
    # Computed once: all the prompts share the prefix, which no branch computes again.
    own = sum(meta["prompt_tokens"] - meta["cached_tokens"] for meta in metas)
    assert usage.computed_tokens <= constants + own


def test_t78_concatenated_forks_have_the_right_text_on_the_model(engine: Engine) -> None:
    @function
    def program(s: ProgramState, mode: str) -> None:
        s += "Two colours:"
        forks = s.fork(2)
        forks += lambda index: f" {'ab'[index]})" + gen("x", max_tokens=5)
        forks.join(mode)
        s += "\nDone:" + gen("end", max_tokens=3)

    texts = set()
    for mode, _ in itertools.product(("concate_and_append", "concat_text"), range(2)):
        state = program.run(mode=mode, backend=engine, temperature=0)
        assert state.text().startswith("Two colours: a)")
        assert state.text().endswith("\nDone:" + state["end"])
        if mode == "concat_text":
            branches = "".join(
                f" {name}){text}" for name, text in zip("ab", state["x"], strict=True)
            )
            assert state.text() == f"Two colours:{branches}\nDone:{state['end']}"
        texts.add(state.text())
    assert len(texts) == 1
