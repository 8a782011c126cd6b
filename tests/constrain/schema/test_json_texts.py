"""Texts of schemas by table: spelling, order, whitespace, numbers, names."""

from __future__ import annotations

from typing import Any

import pytest

from espalier.constrain.membership import is_member
from espalier.constrain.schema import NotRegular, schema_pattern
from espalier.constraint import JsonWhitespace

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "array", "items": {"type": "null"}}},
    "required": ["x"],
    "additionalProperties": False,
}
FLAGS = {
    "type": "object",
    "properties": {name: {"type": "boolean"} for name in "abcde"},
    "additionalProperties": False,
}
OPEN = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "additionalProperties": {"type": "string"},
}
CASES: list[tuple[Any, list[str], list[str]]] = [
    (POINT, ['{"x":0}', '{"x":-7,"y":[]}', '{"x":10,"y":[null,null]}'],
     ["{}", '{"y":[],"x":0}', '{"x":0,}', '{"x":00}', '{"x":-0}', '{"x": 0}', '{"x":0,"z":1}',
      '{"x":0,"x":1}', '{"x":0,"y":[null,]}', '{"x":1.0}']),
    (FLAGS, ["{}", '{"a":true}', '{"c":false,"e":true}', '{"a":true,"b":true,"e":false}'],
     ['{"b":true,"a":true}', '{"a":true,"a":true}', '{,"a":true}']),
    (OPEN, ['{"a":1,"b":"x","c":"y"}', '{"b":"x"}', '{"a\\\\":"x"}', '{"":"x"}'],
     ['{"b":"x","a":1}', '{"a":"x"}', '{"\\u0061":"x"}', '{"a":1,"a":"x"}', '{"b":1}']),
    ({"const": {"b": [1, 2.5], "a": "\n\"\u00e9/"}}, ['{"b":[1,2.5],"a":"\\n\\"é/"}'],
     ['{"a":"\\n\\"é/","b":[1,2.5]}', '{"b":[1,2.50],"a":"\\n\\"é/"}']),
    ({"type": "string", "maxLength": 2},
     ['""', '"ab"', '"\\u00e9\\n"', '"😀x"', '"\\ud83d\\ude00x"', '"\\/\\""'],
     ['"abc"', '"\\ud83d"', '"\\ud83dx"', '"\\udc00"', '"\n"', '"\\x"', '"a']),
    ({"type": "string", "pattern": '^["/a]$'}, ['"\\""', '"/"', '"a"'],
     ['"\\/"', '"\\u0061"', '"""']),
    ({"type": "number"}, ["0", "-0", "1.50", "1e5", "-2E-07", "12345678901234567890"],
     ["01", ".5", "5.", "+1", "1e", "NaN", "- 1"]),
    ({"type": "integer", "minimum": -12, "maximum": 105},
     ["-12", "-1", "0", "9", "99", "100", "105"], ["-13", "106", "-0", "007", "1.0", "1e1"]),
    ({"type": "number", "exclusiveMinimum": -0.5, "maximum": 12.25},
     ["-0.4", "-0.49999", "0", "0.0", "12.25", "12.250", "12.2", "9.99"],
     ["-0.5", "-0.50", "-0.0", "12.251", "12.3", "13", "1e0", "12.2500000000000001"]),
    ({"type": "number", "exclusiveMaximum": 3.7}, ["3.6999", "-1000.5", "0"],
     ["3.7", "3.70", "3.69999999999999999999", "3.8"]),
    ({"type": "number", "multipleOf": 0.01}, ["0.35", "12", "-3.5", "7.00", "0.350"],
     ["0.355", "0.001", "1e-2"]),
    ({"type": "integer", "multipleOf": 25}, ["0", "25", "-125", "1000"], ["5", "130", "026"]),
    ({"type": "integer", "multipleOf": 7, "minimum": 1, "maximum": 50}, ["7", "49"],
     ["0", "8", "56"]),
    ({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True},
     ["[]", '["b"]', '["c","a"]', '["c","b","a"]'], ['["a","a"]', '["a","b","a"]']),
    ({"type": "array", "items": {"type": "integer"}, "contains": {"const": 7}, "maxContains": 2,
      "maxItems": 4}, ["[7]", "[1,7]", "[7,2,7]"], ["[]", "[1]", "[7,7,7]", "[1,2,3,4,7]"]),
    ({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"},
      "c": {"type": "null"}}, "minProperties": 2, "additionalProperties": False},
     ['{"a":null,"b":null}', '{"a":null,"b":null,"c":null}'], ["{}", '{"b":null}']),
    ({"type": "object", "patternProperties": {"^n_": {"type": "integer"}},
      "additionalProperties": False}, ["{}", '{"n_a":1,"n_b":2}'], ['{"n_a":"1"}', '{"x":1}']),
    ({"type": "object", "propertyNames": {"enum": ["p", "q"]},
      "additionalProperties": {"type": "null"}},
     ["{}", '{"p":null}', '{"p":null,"q":null}'], ['{"p":null,"p":null}', '{"r":null}']),
    ({"oneOf": [{"type": "object", "properties": {"k": {"const": k}, k: {"type": "null"}},
                 "required": ["k", k], "additionalProperties": False} for k in "ab"]},
     ['{"k":"a","a":null}', '{"k":"b","b":null}'], ['{"k":"a","b":null}', '{"k":"c"}']),
    ({"type": "integer", "not": {"enum": [1, 3]}, "minimum": 0, "maximum": 4}, ["0", "2", "4"],
     ["1", "3", "5"]),
    ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2023-02-29"', '"2024-13-01"']),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "accepted", "rejected"), CASES)
def test_texts(schema: Any, accepted: list[str], rejected: list[str]) -> None:
    pattern = schema_pattern(schema)
    assert [text for text in accepted if not is_member(pattern, text)] == []
    assert [text for text in rejected if is_member(pattern, text)] == []


def test_whitespace_is_that_of_json_dumps() -> None:
    spaced = schema_pattern(POINT, JsonWhitespace.SPACED)
    assert is_member(spaced, '{"x": 1, "y": [null, null]}')
    assert not is_member(spaced, '{"x":1, "y": [null, null]}')
    pretty = schema_pattern(POINT, JsonWhitespace.PRETTY)
    assert is_member(pretty, '{\n  "x": 1,\n  "y": [\n    null,\n    null\n  ]\n}')
    assert is_member(pretty, '{\n  "x": 1,\n  "y": []\n}')
    assert not is_member(pretty, '{"x": 1}')


@pytest.mark.parametrize(
    ("schema", "keyword", "path"),
    [
        (True, "", ""),
        ({"type": "array"}, "", ""),
        ({"type": "object", "properties": {"a": {"type": "array"}}, "additionalProperties": False},
         "", "/properties/a"),
        ({"type": "array", "items": {"$ref": "#"}}, "", ""),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "uniqueItems", ""),
        ({"type": "integer", "multipleOf": 7}, "multipleOf", ""),
        ({"type": "object", "additionalProperties": {"type": "null"}, "minProperties": 2},
         "minProperties", ""),
    ],
)  # fmt: skip
def test_what_is_not_regular_says_where(schema: Any, keyword: str, path: str) -> None:
    with pytest.raises(NotRegular) as raised:
        schema_pattern(schema)
    assert (raised.value.keyword, raised.value.path) == (keyword, path)


def test_recursion_up_to_a_bound() -> None:
    tree = {"type": "array", "items": {"$ref": "#"}}
    pattern = schema_pattern(tree, max_recursion=2)
    assert is_member(pattern, "[[],[]]")
    assert not is_member(pattern, "[[[]]]")
