"""Schemas that nest without end: what llguidance is given, and what it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.conformance.verdicts import accepts, byte_grammar

from espalier.constrain.automaton import AutomatonGrammar
from espalier.constrain.schema import check_schema, llguidance_enforces
from espalier.constraint import JsonWhitespace
from espalier.errors import UserInputError

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "size": {"type": "integer", "minimum": 0, "multipleOf": 3},
        "parts": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
DEEP = '{"name":"a","parts":[' * 30 + '{"name":"b","size":9}' + "]}" * 30


def nested(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that contains itself and another one."""
    return {"type": "array", "items": {"anyOf": [{"$ref": "#"}, schema]}}


def test_a_closed_tree_nests_without_bound() -> None:
    grammar = byte_grammar(TREE)
    assert not isinstance(grammar, AutomatonGrammar)
    assert accepts(grammar, DEEP)
    assert not accepts(grammar, DEEP.replace('"size":9', '"size":8'))
    assert not accepts(grammar, DEEP.replace('"b"', '"abcd"'))
    assert not accepts(grammar, DEEP.replace('"size":9', '"other":9'))


# What the library would let through, as JSON text; found with llguidance 1.9.1.
GAPS: list[tuple[dict[str, Any], str]] = [
    ({"type": "object", "properties": {"a": {"type": "null"}}}, '[{"\\u0061":1}]'),
    ({"type": "object", "patternProperties": {"^a": {"type": "null"}}}, '[{"\\u0061":1}]'),
    ({"type": "number", "exclusiveMaximum": 3.7}, "[3.69999999999999999999]"),
    ({"type": "integer", "minimum": 9007199254740993}, "[9007199254740992]"),
    ({"type": "string", "pattern": "^a.b$"}, '["a\u2028b"]'),
    ({"type": "string", "format": "date"}, '["2021-02-29"]'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text"), GAPS)
def test_what_the_library_lets_through_is_a_bounded_pattern(
    schema: dict[str, Any], text: str
) -> None:
    assert not llguidance_enforces(check_schema(nested(schema)))
    grammar = byte_grammar(nested(schema))
    assert isinstance(grammar, AutomatonGrammar)
    assert accepts(grammar, "[[],[[]]]")
    assert not accepts(grammar, text)


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 2},
         "minProperties"),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "uniqueItems"),
    ],
)  # fmt: skip
def test_what_neither_can_hold_is_refused_by_name(schema: dict[str, Any], keyword: str) -> None:
    with pytest.raises(UserInputError, match=f"'{keyword}' at /items/anyOf/1 cannot be used"):
        byte_grammar(nested(schema))


def test_pretty_trees_have_a_bound() -> None:
    size = {"type": "integer"}
    grammar = byte_grammar(
        {**TREE, "properties": {**TREE["properties"], "size": size}}, JsonWhitespace.PRETTY
    )
    value = json.loads(DEEP)
    assert not accepts(grammar, json.dumps(value, indent=2))
    for _ in range(23):
        value = value["parts"][0]
    assert accepts(grammar, json.dumps(value, indent=2))


ENDLESS: dict[str, Any] = {"type": "array", "items": {"$ref": "#"}, "minItems": 1}


def test_values_that_never_end_are_refused_before_they_begin() -> None:
    with pytest.raises(UserInputError, match=r"allows no value.*never end"):
        byte_grammar(ENDLESS)


def test_a_part_that_never_ends_is_not_begun() -> None:
    endless = {**ENDLESS, "items": {"$ref": "#/$defs/endless"}}
    schema = {
        "$defs": {"endless": endless, "list": {"type": "array", "items": {"$ref": "#/$defs/list"}}},
        "anyOf": [
            {"type": "null"},
            {"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}},
             "additionalProperties": False},
            {"$ref": "#/$defs/list"},
        ],
    }  # fmt: skip
    grammar = byte_grammar(schema)
    assert accepts(grammar, "null")
    assert accepts(grammar, "{}")
    assert accepts(grammar, "[[],[[]]]")
    matcher = grammar.matcher()
    matcher.accept(ord("{") + 1)  # token 0 is the end of text
    assert matcher.forced_bytes() == b"}"
