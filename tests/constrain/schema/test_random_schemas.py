"""Random schemas against the `jsonschema` library, value by value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.conformance.spellings import spellings
from tests.constrain.schema.random_schemas import schemas, values

from espalier.constrain.membership import is_member
from espalier.constrain.schema import NotRegular, check_schema, schema_pattern
from espalier.constraint import JsonWhitespace
from espalier.errors import UserInputError

jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")


@settings(max_examples=400, deadline=None)
@given(schema=schemas, instances=st.lists(values, min_size=6, max_size=12))
def test_accepted_texts_are_those_of_valid_values(schema: Any, instances: list[Any]) -> None:
    checked = check_schema(schema)
    try:
        pattern = schema_pattern(checked, max_recursion=7)
    except NotRegular as error:
        event(f"not regular: {error.keyword}")
        assume(False)
    except UserInputError as error:
        if "allows no value" not in str(error):
            raise
        pattern = None
    validator = jsonschema.Draft202012Validator(schema)
    for instance in instances:
        accepted = pattern is not None and any(
            is_member(pattern, text) for text in spellings(instance)
        )
        assert accepted == validator.is_valid(instance), (schema, instance)
    event("no value" if pattern is None else "a pattern")


@settings(max_examples=60, deadline=None)
@given(
    schema=schemas,
    instances=st.lists(values, min_size=3, max_size=6),
    whitespace=st.sampled_from([JsonWhitespace.SPACED, JsonWhitespace.PRETTY]),
)
def test_whitespace_changes_nothing_else(
    schema: Any, instances: list[Any], whitespace: JsonWhitespace
) -> None:
    try:
        compact = schema_pattern(schema, max_recursion=2)
    except (NotRegular, UserInputError):
        assume(False)
    spaced = schema_pattern(schema, whitespace, max_recursion=2)
    for instance in instances:
        pairs = zip(spellings(instance), spellings(instance, whitespace), strict=True)
        for plain, text in pairs:
            assert is_member(compact, plain) == is_member(spaced, text)
