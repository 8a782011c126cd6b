"""The reference's test programs whose results need no knowledge, on the real model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lang import upstream_programs as programs
from tests.lang.test_reference_programs import endings

import espalier as sgl
from espalier.lang.config import global_config
from espalier.lang.function import SglFunction
from espalier.runtime import Engine


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, num_threads=2) as engine:
        yield engine


@pytest.fixture(autouse=True)
def default_backend(engine: Engine) -> Iterator[None]:
    sgl.set_default_backend(engine)
    yield
    global_config.default_backend = None


def test_a_chat_of_two_turns() -> None:
    state = programs.answer_two.run(
        question_1="Write a plan.", question_2="Shorten it.", temperature=0.7, max_new_tokens=16
    )
    assert len(state.messages()) in (4, 5)
    assert state.messages()[-1]["content"] == state["answer_2"].lstrip()


def test_a_statement_is_judged() -> None:
    for statement in programs.STATEMENTS:
        state = programs.true_or_false.run(statement=statement)
        assert state["answer"] in ("True", "False", "Unknown")


@pytest.mark.parametrize("program", [programs.decode_json, programs.decode_json_by_regex])
def test_json_is_decoded_in_pieces(program: SglFunction) -> None:
    state = program.run(max_new_tokens=64, temperature=0.0)
    found = json.loads(state["json_output"])
    assert isinstance(found["name"], str)
    assert isinstance(found["population"], int)


def test_an_outline_is_expanded_and_statements_are_joined() -> None:
    state = programs.parallel_decoding.run(topic="writing", temperature=0.3)
    assert isinstance(state["summary"], str)
    assert len(state["detailed_tip"]) == programs.NUM_TIPS
    contexts = {f"context_{index}": text for index, text in enumerate(programs.CONTEXTS)}
    state = programs.parallel_encoding.run(question="Who?", **contexts, temperature=0)
    assert isinstance(state["answer"], str)
    assert "Statement 1: My name is Noah.\nStatement 2:" in state.text()


def test_streams_end_and_join_to_the_text() -> None:
    state = programs.qa(question="Where?", stream=True, max_new_tokens=16)
    assert "".join(state.text_iter()) == state.text()
    state = programs.qa(question="Where?", stream=True, max_new_tokens=16)
    assert "".join(state.text_iter("answer")) == state["answer"]


def test_forms_hold() -> None:
    assert re.match(programs.IP_ADDRESS, programs.regex_gen.run()["answer"])
    state = programs.dtype_gen.run()
    assert isinstance(json.loads(state["str_res"]), str)
    int(state["int_res"])
    float(state["float_res"])
    assert state["bool_res"] in ("True", "False")


def test_endings_are_chosen_among_those_listed_and_the_shots_are_computed_once() -> None:
    lines = endings(12)
    program = programs.endings_program(lines, 4)
    arguments = [
        {"question": programs.example_of(line, False), "choices": line["endings"]} for line in lines
    ]
    states = program.run_batch(arguments, temperature=0, num_threads=64)
    for line, state in zip(lines, states, strict=True):
        assert state["answer"] in line["endings"]
    usage = [state.usage() for state in states]
    assert sum(item.cached_tokens for item in usage) > 0.6 * sum(u.prompt_tokens for u in usage)


def test_min_tokens_is_the_least_number_of_tokens() -> None:
    state = programs.long_answer.run()
    assert state.get_meta_info("answer")["completion_tokens"] >= 64
