"""Bad and costly forms on the real model: a clear end in bounded time, and nobody else notices.

Each runs while another request does, which has the bits that it has alone.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from espalier.errors import CapacityError, UserInputError
from espalier.runtime import Answer, Engine

# Most take milliseconds, the slowest a second on two cores.
MAX_SECONDS = 20.0
STEADY = {"max_new_tokens": 40, "temperature": 0.8, "sampling_seed": 3, "ignore_eos": True}


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, max_total_tokens=2048) as engine:
        yield engine


@pytest.fixture(scope="module")
def alone(engine: Engine) -> Answer:
    answer: Answer = engine.generate("The gardener", STEADY, return_logprob=True)
    return answer


@pytest.fixture
def undisturbed(engine: Engine, alone: Answer) -> Iterator[None]:
    """Another request that runs meanwhile."""
    stream = engine.generate("The gardener", STEADY, return_logprob=True, stream=True)
    next(stream)
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < MAX_SECONDS
    (last,) = deque(stream, maxlen=1)
    assert last["output_ids"] == alone["output_ids"]
    names = ("output_token_logprobs", "finish_reason")
    assert [last["meta_info"][name] for name in names] == [
        alone["meta_info"][name] for name in names
    ]
    assert engine.get_server_info()["stats"]["slots_locked"] == 0


def generate(engine: Engine, form: dict[str, Any], **sampling: Any) -> Answer:
    asked = {"max_new_tokens": 16, "temperature": 1.0, "sampling_seed": 1, **form, **sampling}
    answer: Answer = engine.generate("The answer:", asked)
    return answer


def nested(opening: str, inner: str, closing: str, depth: int = 1000) -> str:
    return opening * depth + inner + closing * depth


def nested_dict(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "open group": ({"regex": "(ab"}, "position 0, the group is not closed"),
    "look-around": ({"regex": "(?=a)b"}, "look-ahead, is not supported"),
    "back-reference": ({"regex": r"(a|b)\1"}, "back-reference"),
    "no text": ({"regex": r"[^\s\S]"}, "cannot be met"),
    "text after the end": ({"regex": "a$b"}, "cannot be met"),
    "deep regex": ({"regex": nested("(", "a", ")", 100_000)}, "at most 16384 are allowed"),
    "million counts": ({"regex": "[ab]{1000000}"}, "the count 1000000 is above"),
    "unknown keyword": ({"json_schema": {"type": "string", "frobnicate": 1}}, "'frobnicate'"),
    "no JSON": ({"json_schema": "{"}, "not valid JSON"),
    "empty bounds": (
        {"json_schema": {"type": "integer", "minimum": 5, "maximum": 1}},
        "allows no value",
    ),
    "empty types": (
        {"json_schema": {"allOf": [{"type": "string"}, {"type": "integer"}]}},
        "allows no value",
    ),
    "empty property": (
        {"json_schema": {"type": "object", "properties": {"a": False}, "required": ["a"]}},
        "allows no value",
    ),
    "1 MB of values": (
        {"json_schema": json.dumps({"enum": [f"value {i} {'x' * 40}" for i in range(16_000)]})},
        "at most 500000 are allowed",
    ),
    "2 MB": ({"json_schema": json.dumps({"const": "x" * 2_000_000})}, "at most 1048576"),
    "deep arrays": (
        {"json_schema": nested('{"type":"array","items":', "{}", "}")},
        "nested too deeply",
    ),
    "deep logic": ({"json_schema": nested('{"not":', "{}", "}")}, "nested too deeply"),
    "deep dict": ({"json_schema": nested_dict(1000)}, "json_schema is a dict, which is no JSON"),
    "very deep": ({"json_schema": "[" * 100_000}, "nested too deeply"),
    "loop": ({"json_schema": {"$ref": "#"}}, "leads back to itself"),
    "big patterns": (
        {"json_schema": {"oneOf": [{"pattern": f"a.{{{i}}}$"} for i in range(14)]}},
        "too large",
    ),
    "many choices": ({"choices": [f"choice {i}" for i in range(50_000)]}, "limit"),
    "no choices": ({"choices": []}, "list of choices is empty"),
    "unknown rule": ({"ebnf": "root ::= foo"}, "no rule 'foo'"),
    "endless rule": ({"ebnf": "root ::= root"}, "never ends"),
    "deep grammar": ({"ebnf": "root ::= " + "(" * 100_000}, "nested more than"),
    "Lark": ({"lark": "start: /("}, "cannot be used"),
    "two forms": ({"regex": "a", "ebnf": 'root ::= "a"'}, "one form"),
}


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_cannot_be_met_or_is_too_large_is_refused(engine: Engine, name: str) -> None:
    form, told = REFUSED[name]
    with pytest.raises((UserInputError, CapacityError)) as raised:
        generate(engine, form)
    assert told in str(raised.value)
    assert len(str(raised.value)) < 500


ENDURED = {
    "ambiguous": "(a|a)*b",
    "nested stars": "((a*)*)*b",
    "overlapping": "(a|aa)+c",
    "optional": "(a?){30}a{30}",
    "deep": nested("(", "a", ")"),
    "deep stars": nested("(?:", "a", ")*"),
    "a million states": "[ab]*a[ab]{20}",
    "a billion letters": "((a{1000}){1000}){1000}",
    "counts in counts": r"(\w{1,50}\W{1,50}){1,50}",
    "many wild cards": "(.*a.*b.*){20}c",
    "counted wild cards": "(.{0,300}a.{0,300}b){40}",
}


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("name", ENDURED)
def test_a_costly_regex_gives_a_text_or_its_beginning(engine: Engine, name: str) -> None:
    answer = generate(engine, {"regex": ENDURED[name]})
    reason, count = answer["meta_info"]["finish_reason"], len(answer["output_ids"])
    assert reason["type"] == "stop" or (reason == {"type": "length", "length": 16} and count == 16)


@pytest.mark.usefixtures("undisturbed")
def test_a_stop_string_inside_a_field_ends_the_text_there(engine: Engine) -> None:
    form = {"json_schema": {"enum": [{"name": "Alice Cooper", "age": 4}]}}
    answer = generate(engine, form, stop=["Coop"], max_new_tokens=64)
    assert answer["text"] == '{"name":"Alice '
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": "Coop"}


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("count", range(1, 12))
def test_a_text_that_reaches_the_limit_of_tokens_is_kept(engine: Engine, count: int) -> None:
    whole = '{"name":"Alice Cooper","born":[1948,2,4],"city":"Detroit"}'
    form = {"json_schema": {"const": json.loads(whole)}}
    answer = generate(engine, form, max_new_tokens=count)
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": count}
    assert len(answer["output_ids"]) == count
    assert answer["text"]
    assert whole.startswith(answer["text"])
