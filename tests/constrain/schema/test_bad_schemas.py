"""Schemas that cannot be used: the error names the keyword and its place, in bounded time."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from espalier.constrain.schema import NotRegular, check_schema, schema_pattern
from espalier.errors import UserInputError


def nested(depth: int) -> str:
    return '{"type":"array","items":' * depth + "true" + "}" * depth


BAD: list[tuple[Any, str]] = [
    ({"tpye": "string"}, r"'tpye' at the top of the schema cannot be used: it is not a keyword"),
    ({"properties": {"a/b": {"nullable": True}}}, r"'nullable' at /properties/a~1b"),
    ({"type": "text"}, r"'type' .* is 'text'; one of 'null'"),
    ({"type": []}, r"'type' .* is \[\]"),
    ({"minLength": "a"}, r"'minLength' .* is 'a'; an integer that is not negative"),
    ({"minLength": -1}, r"'minLength'"),
    ({"minLength": 1.5}, r"'minLength'"),
    ({"maximum": True}, r"'maximum' .* is True; a number"),
    ({"multipleOf": 0}, r"'multipleOf' .* a number above 0"),
    ({"required": ["a", "a"]}, r"'required'"),
    ({"required": "a"}, r"'required'"),
    ({"enum": 1}, r"'enum'"),
    ({"allOf": []}, r"'allOf'"),
    ({"anyOf": [1]}, r"'anyOf' at the top of the schema is 1; a schema"),
    ({"properties": []}, r"'properties'"),
    ({"items": 3}, r"'items' at the top of the schema is 3"),
    ({"uniqueItems": "yes"}, r"'uniqueItems'"),
    ({"pattern": 3}, r"'pattern'"),
    ({"pattern": "("}, r"'pattern' .* a group is not closed"),
    ({"pattern": r"(a)\1"}, r"'pattern' .* escape"),
    ({"pattern": r"\bfoo"}, r"'pattern' .* escape"),
    ({"pattern": "(?<=a)b"}, r"'pattern' .* look-behind"),
    ({"pattern": "a{99999}"}, r"'pattern' .* repetitions"),
    ({"format": "zip"}, r"'format' .* 'zip' is not enforced; date, "),
    ({"$ref": "#/$defs/no"}, r"'\$ref' .* leads to no schema"),
    ({"$ref": "#nowhere"}, r"'\$ref' .* leads to no schema"),
    ({"$ref": "http://example.com/s.json"}, r"'\$ref' .* leads out of the schema"),
    ({"$ref": 1}, r"'\$ref'"),
    ({"$ref": "#/enum/0", "enum": [{"type": "string"}]}, r"'\$ref' .* leads to no schema"),
    ({"$ref": "#"}, r"'\$ref' .* back to itself"),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        r"'\$ref' at /\$defs/\w cannot be used: it leads back to itself",
    ),
    ({"anyOf": [{"type": "string"}, {"$ref": "#"}]}, r"back to itself"),
    ({"$schema": "http://json-schema.org/draft-04/schema#"}, r"'\$schema'"),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [True]},
        r"'prefixItems' .* not a keyword of draft 7",
    ),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "contentEncoding": "base64"},
        r"'contentEncoding'",
    ),
    ({"additionalItems": False}, r"'additionalItems'"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, r"allows no value"),
    ({"enum": [1, 2], "type": "string"}, r"allows no value"),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, r"allows no value"),
    (False, r"allows no value"),
    ("{", r"not valid JSON"),
    ("[1]", r"an object, true or false is allowed"),
    ('{"a":1,"a":2}', r"the key 'a' appears twice"),
    ('{"minimum":NaN}', r"NaN is not JSON"),
    ('{"minimum":1e999999}', r"out of range"),
    ({"const": "\ud800"}, r"half a surrogate pair"),
    ({"default": {1, 2}}, r"cannot be written as JSON"),
    (nested(1_000), r"nested too deeply"),
    (nested(100_000 // 24), r"nested too deeply"),
    ('{"title":"' + "x" * 1_000_000 + '"}', r"at most 500000 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "message"), BAD)
def test_bad_schemas_are_refused_by_name(schema: Any, message: str) -> None:
    with pytest.raises(UserInputError, match=re.compile(message, re.DOTALL)):
        schema_pattern(schema)


def test_large_schemas_have_an_answer_in_time() -> None:
    wide = {"type": "object", "additionalProperties": False,
            "properties": {f"name_{i}": {"enum": ["a", "b"]} for i in range(8_000)}}  # fmt: skip
    schema_pattern(wide)
    many = {"anyOf": [{"type": "object", "properties": {f"p{i}": {"type": "string"}}}
                      for i in range(30)]}  # fmt: skip
    denied = {"not": {"allOf": [many, many]}, "type": "object"}
    with pytest.raises(NotRegular):
        schema_pattern(denied)


def test_chains_of_references_end_in_an_answer() -> None:
    defs = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(300)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**defs, "d300": {"type": "null"}}}
    with pytest.raises(UserInputError, match="more than 32 references"):
        schema_pattern(schema)


def test_objects_in_objects_have_a_bound() -> None:
    defs: dict[str, Any] = {
        f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(300)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": {**defs, "d300": {"type": "null"}}}
    with pytest.raises(UserInputError, match="nest more than 50"):
        schema_pattern(json.dumps(schema))


@pytest.mark.parametrize(
    "schema",
    [
        {"title": "a", "description": "b", "default": 1, "examples": [1], "$comment": "c",
         "deprecated": True, "readOnly": True, "writeOnly": False, "contentEncoding": "base64",
         "x-order": 3, "type": "null"},
    ],
)  # fmt: skip
def test_annotations_assert_nothing(schema: dict[str, Any]) -> None:
    assert schema_pattern(schema) == schema_pattern({"type": "null"})
    assert check_schema(schema).root.keywords.keys() == {"type"}
