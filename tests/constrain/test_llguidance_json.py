"""Recursive JSON schemas by the library: exact whitespace, depth, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.constrain.tiny_vocabulary import TinyTokenizer, allowed

from espalier.constrain.llguidance_json import MAX_CHAIN, json_schema_grammar
from espalier.constraint import JsonWhitespace
from espalier.errors import CapacityError, EspalierError, UnsupportedError, UserInputError

PIECES = [b"<end>", *(bytes([byte]) for byte in range(256)), b'{"', b'":', b'": ', b", ", b"},"]
ASCII = TinyTokenizer(PIECES, {0}, {0})

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 5},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["name", "children"],
    "additionalProperties": False,
}
LEAF = {"name": "a", "children": []}
TREES = [
    LEAF,
    {"name": "", "children": [LEAF, LEAF]},
    {"name": "\u00e9\n", "children": [{"name": "b", "children": [LEAF]}]},
]
NO_TREES: list[Any] = [
    {},
    {"name": "a"},
    {"children": [], "name": "a"},
    {"name": "abcdef", "children": []},
    {"name": "a", "children": [{}]},
    {"name": "a", "children": [], "more": 1},
    [],
]
DUMPS = {
    JsonWhitespace.COMPACT: {"separators": (",", ":")},
    JsonWhitespace.SPACED: {},
    JsonWhitespace.PRETTY: {"indent": 2},
}


def is_accepted(schema: Any, whitespace: JsonWhitespace, text: str) -> bool:
    matcher = json_schema_grammar(json.dumps(schema), whitespace, ASCII).matcher()
    for byte in text.encode():
        if byte + 1 not in allowed(matcher):
            return False
        matcher.accept(byte + 1)
    return matcher.is_complete


@pytest.mark.parametrize("whitespace", [JsonWhitespace.COMPACT, JsonWhitespace.SPACED])
def test_a_recursive_schema_accepts_exactly_its_whitespace(whitespace: JsonWhitespace) -> None:
    for tree in TREES:
        for written, arguments in DUMPS.items():
            text = json.dumps(tree, ensure_ascii=False, **arguments)  # type: ignore[arg-type]
            assert is_accepted(TREE, whitespace, text) == (written is whitespace), text
    for wrong in NO_TREES:
        text = json.dumps(wrong, **DUMPS[whitespace])  # type: ignore[arg-type]
        assert not is_accepted(TREE, whitespace, text), text


@pytest.mark.parametrize("whitespace", [JsonWhitespace.COMPACT, JsonWhitespace.SPACED])
def test_whitespace_of_constants_and_of_free_values_is_the_same(
    whitespace: JsonWhitespace,
) -> None:
    value = {"a": [1, {"b": None}], "c": "d, e: f"}
    for schema in ({"const": value}, {"enum": [1, value]}, {}, True, {"type": "object"}):
        for written, arguments in DUMPS.items():
            text = json.dumps(value, **arguments)  # type: ignore[arg-type]
            assert is_accepted(schema, whitespace, text) == (written is whitespace), (schema, text)


def test_forced_bytes_are_those_of_the_schema() -> None:
    matcher = json_schema_grammar(json.dumps(TREE), JsonWhitespace.SPACED, ASCII).matcher()
    assert matcher.forced_bytes() == b'{"name": "'
    for byte in b'{"name": "a"':
        matcher.accept(byte + 1)
    assert matcher.forced_bytes() == b', "children": ['
    matcher.rollback(1)
    assert matcher.forced_bytes() == b""


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("", UserInputError, "no JSON"),
        ("nul", UserInputError, "no JSON"),
        ("[]", UserInputError, "a list"),
        ("false", UserInputError, "nothing satisfies"),
        ('{"x-guidance": {"lenient": true}}', UnsupportedError, "x-guidance"),
        ('{"not": {"type": "null"}}', UserInputError, "not"),
        ('{"type": "array", "uniqueItems": true}', UserInputError, "uniqueItems"),
        ('{"$ref": "#/nowhere"}', UserInputError, "cannot be used"),
        ('{"type": "string", "enum": [1]}', UserInputError, "cannot be used"),
        ('{"items":' * 200_000 + "{}" + "}" * 200_000, CapacityError, "nested too deeply"),
        ('{"items":' * 300 + "{}" + "}" * 300, UserInputError, "cannot be used"),
        (json.dumps({"anyOf": [{"$ref": f"#/{i}"} for i in range(MAX_CHAIN)]}), CapacityError,
         str(MAX_CHAIN)),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused(
    text: str, error: type[EspalierError], told: str
) -> None:
    with pytest.raises(error, match=told) as caught:
        json_schema_grammar(text, JsonWhitespace.COMPACT, ASCII)
    assert len(str(caught.value)) < 600


def test_pretty_whitespace_is_refused_with_what_to_do() -> None:
    with pytest.raises(UnsupportedError, match="Use whitespace='compact' or 'spaced'"):
        json_schema_grammar(json.dumps(TREE), JsonWhitespace.PRETTY, ASCII)


def test_a_chain_of_references_as_long_as_allowed_compiles() -> None:
    """Without a stack of its own the compiler would end the process here."""
    count = MAX_CHAIN // 2 - 10
    definitions = {
        f"d{i}": {
            "type": "object",
            "properties": {"x": {"$ref": f"#/$defs/d{min(i + 1, count - 1)}"}},
        }
        for i in range(count)
    }
    schema = {"$ref": "#/$defs/d0", "$defs": definitions}
    matcher = json_schema_grammar(json.dumps(schema), JsonWhitespace.COMPACT, ASCII).matcher()
    assert matcher.forced_bytes() == b"{"
