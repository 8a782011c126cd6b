from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from tests.lang.appending import run

from espalier.backends.scripted import ScriptedBackend
from espalier.constraint import Constraint, ConstraintKind, JsonWhitespace
from espalier.errors import GenerationError, UserInputError
from espalier.lang.api import gen
from espalier.lang.form import form_of
from espalier.lang.ir import SglGen, SglSelect


class Person(BaseModel):
    name: str
    age: int


@dataclass
class Point:
    x: int
    y: int


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"regex": "a+"}, ConstraintKind.REGEX, "a+"),
        ({"ebnf": 'root ::= "a"'}, ConstraintKind.EBNF, 'root ::= "a"'),
        ({"lark": 'start: "a"'}, ConstraintKind.LARK, 'start: "a"'),
        ({"json_schema": "{}"}, ConstraintKind.JSON_SCHEMA, "{}"),
        ({"dtype": float}, ConstraintKind.DTYPE, "float"),
        ({"tool_calls": {"style": "hermes"}}, ConstraintKind.TOOL_CALLS, '{"style": "hermes"}'),
        ({"tool_calls": "{}"}, ConstraintKind.TOOL_CALLS, "{}"),
    ],
)
def test_a_form_reaches_the_backend_as_it_was_given(
    given: dict[str, Any], kind: ConstraintKind, text: str
) -> None:
    backend = ScriptedBackend("1")
    state = run("p", gen("x", **given), backend=backend)
    assert state["x"] == "1"
    assert state.text("x") == "1"
    assert backend.calls[0].constraint == Constraint(kind, text)


def test_the_schema_of_a_type_has_no_further_properties() -> None:
    form = form_of(json_schema=dict[str, Person])
    assert form is not None
    schema = json.loads(form.constraint.text)
    assert schema["$defs"]["Person"]["additionalProperties"] is False
    assert schema["additionalProperties"] == {"$ref": "#/$defs/Person"}


def test_n_typed_samples_are_a_list_of_values() -> None:
    backend = ScriptedBackend([['{"a":1}', '{"a":2}']])
    state = run("p", gen("x", json_schema=SCHEMA, n=2), backend=backend)
    assert state["x"] == [{"a": 1}, {"a": 2}]
    assert state.text("x") == ['{"a":1}', '{"a":2}']
    assert state.text() == 'p{"a":1}'


def test_a_cut_value_raises_where_it_is_read_and_keeps_its_text() -> None:
    backend = ScriptedBackend('{"a": 5 , "b"')
    state = run("p", gen("x", json_schema=SCHEMA, max_tokens=2), " and", backend=backend)
    with pytest.raises(GenerationError, match=r"no whole value.*max_new_tokens \(2\)") as caught:
        state["x"]
    assert "s.text('x')" in str(caught.value)
    assert state.text("x") == '{"a": 5'
    assert state.get_meta_info("x")["finish_reason"]["type"] == "length"
    assert state.text() == 'p{"a": 5 and'
    assert state.error() is None


def test_a_typed_value_streams_as_text() -> None:
    backend = ScriptedBackend('{"a": 5 }')
    state = run("p", gen("x", json_schema=SCHEMA), backend=backend, stream=True)
    assert "".join(state.text_iter("x")) == '{"a": 5 }'
    assert state["x"] == {"a": 5}


def test_whitespace_goes_with_the_schema() -> None:
    form = form_of(json_schema=SCHEMA, whitespace="pretty")
    assert form is not None
    assert form.constraint.whitespace is JsonWhitespace.PRETTY


def test_an_exact_regex_is_a_selection_of_its_texts() -> None:
    expression = gen("x", regex="(above|below) average", exact=True)
    assert isinstance(expression, SglSelect)
    assert expression.choices == ("above average", "below average")
    assert isinstance(gen("x", regex="(above|below) average"), SglGen)


class Picky(BaseModel):
    age: int

    @field_validator("age")
    @classmethod
    def check(cls, age: int) -> int:
        raise TypeError(f"{age} is not to be")


@pytest.mark.parametrize(
    ("schema", "text", "told"),
    [
        (Picky, '{"age":1}', "TypeError: 1 is not to be"),
        ({"type": "array"}, "[" * 100_000 + "]" * 100_000, "RecursionError"),
    ],
)
def test_a_reader_that_fails_in_its_own_way_fails_that_variable_alone(
    schema: Any, text: str, told: str
) -> None:
    backend = ScriptedBackend([text, "more"])
    state = run("p", gen("x", json_schema=schema), gen("y"), backend=backend)
    with pytest.raises(GenerationError, match=told):
        state["x"]
    assert state.text("x") == text
    assert state["y"] == "more"


def test_a_dict_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(UserInputError, match="json_schema is a dict, which is no JSON"):
        form_of(json_schema=schema)
