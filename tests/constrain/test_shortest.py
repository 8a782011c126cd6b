"""Shortest texts of forms, against trying every short text."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from espalier.constrain.compiler import compiler_of
from espalier.constrain.shortest import shortest_bytes, single_byte_tokens
from espalier.constraint import Constraint, ConstraintKind

from .tiny_vocabulary import TinyTokenizer

TOKENIZER = TinyTokenizer(
    [*(bytes([byte]) for byte in range(256)), b"<end>"], control={256}, eos_ids={256}
)


def shortest(kind: ConstraintKind, text: str) -> str | None:
    grammar = compiler_of(TOKENIZER, TOKENIZER.vocab_size).compile(Constraint(kind, text))
    data = shortest_bytes(grammar.matcher(), single_byte_tokens(TOKENIZER))
    return None if data is None else data.decode()


@pytest.mark.parametrize(
    "regex",
    [
        "a*",
        "ab|c",
        "(ab){2,3}|bbbcc",
        "[bc]+a?",
        "a(b|c)(b|c)c",
        "(a|bc)*c{3}",
        "c?b?a?abc",
        "b{4}",
    ],
)
def test_no_text_of_a_regex_is_shorter(regex: str) -> None:
    found = shortest(ConstraintKind.REGEX, regex)
    texts = (
        "".join(text) for length in range(7) for text in itertools.product("abc", repeat=length)
    )
    first = next(text for text in texts if re.fullmatch(regex, text))
    assert found is not None
    assert re.fullmatch(regex, found)
    assert len(found) == len(first)


@pytest.mark.parametrize(("dtype", "read"), [("int", int), ("float", float), ("str", json.loads)])
def test_typed_texts_can_be_read(dtype: str, read: type) -> None:
    found = shortest(ConstraintKind.DTYPE, dtype)
    assert found is not None
    read(found)


def test_a_schema_has_a_short_value() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^[A-Z][a-z]{2,9}$"},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "size": {"enum": ["large", "small", "xl"]},
            "free": {"type": "string"},
        },
        "required": ["name", "tags", "size", "free"],
        "additionalProperties": False,
    }
    found = shortest(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    assert found is not None
    value = json.loads(found)
    assert len(value["name"]) == 3
    assert value["tags"] == ["", ""]
    assert (value["size"], value["free"]) == ("xl", "")


def test_a_nested_schema_and_a_grammar_have_some_text() -> None:
    nested = {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    }
    found = shortest(ConstraintKind.JSON_SCHEMA, json.dumps(nested))
    assert found is not None
    assert json.loads(found) == {}
    assert shortest(ConstraintKind.EBNF, 'root ::= "[" (root | "x") "]"') is not None
