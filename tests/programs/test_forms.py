"""Forms on the real model: values of types, what is forced, compiled once, the same by any way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel

from espalier.lang.api import gen
from espalier.lang.function import function
from espalier.lang.state import ProgramState
from espalier.runtime import Engine

IP = r"\d{1,3}(\.\d{1,3}){3}"
TREE = {
    "$defs": {
        "tree": {
            "type": "object",
            "properties": {
                "value": {"type": "integer", "minimum": 0, "maximum": 9},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2},
            },
            "required": ["value", "children"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/tree",
}


class City(BaseModel):
    name: str
    continent: Literal["Africa", "America", "Asia", "Europe"]
    is_capital: bool


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, max_total_tokens=4096) as engine:
        yield engine


@function
def city_facts(s: ProgramState, name: str) -> None:
    s += f"The city of {name} as JSON:\n"
    s += gen("city", json_schema=City, max_tokens=64, temperature=0)


def test_a_type_gives_its_value_and_counts_what_was_forced(engine: Engine) -> None:
    states = city_facts.run_batch([{"name": "Cairo"}, {"name": "Oslo"}], backend=engine)
    for state in states:
        assert isinstance(state["city"], City)
        assert json.loads(state.text("city")) == state["city"].model_dump()
        usage = state.usage()
        meta = state.get_meta_info("city")
        assert 5 <= usage.forced_tokens == meta["forced_tokens"] < meta["completion_tokens"]


def test_a_form_is_compiled_once(engine: Engine) -> None:
    def misses() -> int:
        return int(engine.get_server_info()["grammars"]["num_misses"])

    before = misses()
    for prompt in ("One: ", "Two: ", "Three: "):
        engine.generate(prompt, {"regex": "(compiled|once)[0-9]{3}", "max_new_tokens": 16})
    assert misses() == before + 1


def test_whitespace_is_that_of_json_dumps(engine: Engine) -> None:
    schema = City.model_json_schema() | {"additionalProperties": False}
    styles: dict[str, dict[str, Any]] = {
        "compact": {"separators": (",", ":")},
        "spaced": {},
        "pretty": {"indent": 2},
    }
    for style, settings in styles.items():
        params: dict[str, Any] = {
            "json_schema": schema,
            "json_whitespace": style,
            "max_new_tokens": 100,
        }
        text = engine.generate("A city as JSON:\n", params | {"temperature": 0})["text"]
        assert text == json.dumps(json.loads(text), ensure_ascii=False, **settings)


def test_a_recursive_schema_gives_valid_json(engine: Engine) -> None:
    for seed in range(5):
        params: dict[str, Any] = {"json_schema": TREE, "max_new_tokens": 200}
        answer = engine.generate("A tree as JSON:\n", params | {"sampling_seed": seed})
        if answer["meta_info"]["finish_reason"]["type"] == "stop":
            jsonschema.validate(json.loads(answer["text"]), TREE)


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"regex": IP}, IP),
        ({"choices": ["north", "north-east", "south"]}, "north|north-east|south"),
        ({"ebnf": 'root ::= ("- " [a-z]+ "\\n"){2}'}, "(- [a-z]+\n){2}"),
        ({"lark": 'start: "[" NUMBER ("," NUMBER)* "]"\nNUMBER: /[0-9]{1,3}/'}, r"\[[0-9,]+\]"),
    ],
)
def test_outputs_have_their_form_with_and_without_jumps(
    smollm2_path: Path, engine: Engine, form: dict[str, Any], pattern: str
) -> None:
    params = [
        {**form, "max_new_tokens": 60, "temperature": temperature, "sampling_seed": seed}
        for temperature in (0.0, 1.0)
        for seed in range(4)
    ]
    prompts = ["Answer: "] * len(params)
    answers = engine.generate(prompts, params)
    with Engine(smollm2_path, max_total_tokens=4096, jump_forward=False) as slow:
        one_by_one = slow.generate(prompts, params)
    for answer, other in zip(answers, one_by_one, strict=True):
        assert answer["output_ids"] == other["output_ids"]
        if answer["meta_info"]["finish_reason"]["type"] == "stop":
            assert re.fullmatch(pattern, answer["text"])


def test_streamed_pieces_join_to_the_text_though_tokens_are_healed(engine: Engine) -> None:
    params: dict[str, Any] = {
        "regex": r'\{"a": "[a-z ]{1,9}", "b": "[a-z ]{1,9}"\}',
        "max_new_tokens": 60,
    }
    for seed in range(6):
        last = ""
        pieces = engine.generate("JSON: ", params | {"sampling_seed": seed}, stream=True)
        for piece in pieces:
            assert piece["text"].startswith(last)
            last = piece["text"]
        assert re.fullmatch(params["regex"], last)
