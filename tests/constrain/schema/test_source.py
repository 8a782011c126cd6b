"""Schemas from Python types, and values back."""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
from typing import Any, Literal

import pytest

from espalier.constrain.schema import schema_pattern
from espalier.constrain.schema.naive_match import matches
from espalier.constrain.schema.source import parse_value, schema_of
from espalier.errors import UnsupportedError, UserInputError

pydantic = pytest.importorskip("pydantic", reason="needs pydantic")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Address(pydantic.BaseModel):  # type: ignore[name-defined, misc]
    street: str
    zip_code: str = pydantic.Field(pattern=r"^\d{5}$")


class Person(pydantic.BaseModel):  # type: ignore[name-defined, misc]
    name: str
    age: int = pydantic.Field(ge=0, le=150)
    colour: Colour
    address: Address | None = None


@dataclasses.dataclass
class Point:
    x: int
    y: float


def accepts(source: object, text: str) -> bool:
    schema, closes = schema_of(source)
    return matches(schema_pattern(schema, closes_objects=closes), text)


PERSON = '{"name":"Ann","age":41,"colour":"red","address":{"street":"S","zip_code":"12345"}}'


def test_model_is_closed_and_comes_back() -> None:
    assert accepts(Person, PERSON)
    person = parse_value(Person, PERSON)
    assert isinstance(person, Person)
    assert person.colour is Colour.RED
    assert not accepts(Person, PERSON[:-1] + ',"more":1}')
    assert not accepts(Person, PERSON.replace("41", "151"))
    assert not accepts(Person, PERSON.replace("12345", "1234"))


@pytest.mark.parametrize(
    ("source", "text", "value"),
    [
        (list[Point], '[{"x":1,"y":2.5}]', [Point(1, 2.5)]),
        (Literal["a", 3], "3", 3),
        (Colour, '"blue"', Colour.BLUE),
        (int | None, "null", None),
        (dict[str, int], '{"k":1}', {"k": 1}),
        (tuple[int, str], '[1,"a"]', (1, "a")),
        ({"type": "integer"}, "12", 12),
        ('{"type":"string"}', '"x"', "x"),
    ],
)
def test_types(source: object, text: str, value: object) -> None:
    assert accepts(source, text)
    assert parse_value(source, text) == value


def test_a_model_that_allows_more_stays_open() -> None:
    class Open(pydantic.BaseModel, extra="allow"):  # type: ignore[name-defined, misc, call-arg]
        a: int

    schema, closes = schema_of(Open)
    assert matches(
        schema_pattern(schema, closes_objects=closes, max_recursion=1), '{"a":1,"b":null}'
    )


@pytest.mark.parametrize("source", [None, 3, ["string"], b"{}"])
def test_other_values_are_refused(source: object) -> None:
    with pytest.raises(UserInputError, match="a dict, JSON text, a pydantic model"):
        schema_of(source)


def test_types_without_schema_are_refused() -> None:
    with pytest.raises(UserInputError, match="has no JSON schema"):
        schema_of(type("Plain", (), {}))


def test_text_that_was_cut_off_is_an_error() -> None:
    with pytest.raises(UserInputError, match="cut off"):
        parse_value(Person, PERSON[:20])
    with pytest.raises(UserInputError, match="cut off"):
        parse_value({"type": "object"}, '{"a":')


def test_missing_pydantic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(UnsupportedError, match="install pydantic"):
        schema_of(Point)
    given: dict[str, Any] = {"type": "null"}
    assert json.loads(schema_of(given)[0]) == given
