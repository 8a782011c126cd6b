from __future__ import annotations

from pathlib import Path

import pytest

from espalier.cli.form_choice import FormChoice
from espalier.errors import UserInputError


def test_forms_are_given_by_the_names_of_gen() -> None:
    assert FormChoice(regex="a+").given() == {"regex": "a+"}
    assert FormChoice(json_schema="{}", whitespace="pretty").given() == {
        "json_schema": "{}",
        "whitespace": "pretty",
    }
    assert FormChoice().given() == {}


def test_a_schema_or_grammar_may_come_from_a_file_and_a_regex_may_begin_with_at(
    tmp_path: Path,
) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"type": "null"}', encoding="utf-8")
    assert FormChoice(json_schema=f"@{path}").given() == {"json_schema": '{"type": "null"}'}
    assert FormChoice(regex="@[a-z]+").given() == {"regex": "@[a-z]+"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match=r"--json-schema names the file .*none\.json"):
        FormChoice(json_schema=f"@{tmp_path / 'none.json'}").given()
    broken = tmp_path / "bytes"
    broken.write_bytes(b"\xff")
    with pytest.raises(UserInputError, match="--ebnf names the file"):
        FormChoice(ebnf=f"@{broken}").given()
