"""Each row of the table in docs/language.md that says what `s["x"]` is, run on a script."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.lang.appending import run

from espalier.backends.scripted import ScriptedBackend
from espalier.errors import UnknownVariableError
from espalier.lang.api import gen, gen_int, gen_string, select
from espalier.lang.function import function
from espalier.lang.ir import SglExpr
from espalier.lang.state import ProgramState

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
SECTION = PAGE.read_text(encoding="utf-8").split('### What `s["x"]` is\n')[1].split("\n### ")[0]
ROWS = [
    tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
    for line in SECTION.splitlines()
    if line.startswith("| ") and not line.startswith("| written")
]


class Model(BaseModel):
    a: int


SCHEMA = Model.model_json_schema()
TOOLS = {"tools": [{"name": "f", "parameters": {}}], "style": "hermes"}
JSON = '{"a":5}'

# Part of a row's first cell -> expressions, what the model writes, what the variable is.
GENS: dict[str, tuple[list[SglExpr], str, Any]] = {
    '`gen("x")`': ([gen("x")], "free", "free"),
    "gen_int": ([gen_int("x"), gen("x", dtype=int), gen("x", dtype="int")], "12", "12"),
    "dtype=float": ([gen("x", dtype=float), gen("x", dtype="float")], "1.5", "1.5"),
    "dtype=bool": ([gen("x", dtype=bool), gen("x", dtype="bool")], "True", "True"),
    "gen_string": (
        [gen_string("x"), gen("x", dtype=str), gen("x", dtype="str")],
        '"a b"',
        '"a b"',
    ),
    '`gen("x", regex="...")`': ([gen("x", regex="a|b")], "a", "a"),
    "exact=True": ([gen("x", regex="a|b", exact=True)], "b", "b"),
    "choices=": ([gen("x", choices=["a", "b"]), select("x", ["a", "b"])], "b", "b"),
    "ebnf=": ([gen("x", ebnf='root ::= "a"'), gen("x", lark='start: "a"')], "a", "a"),
    "tool_calls=": ([gen("x", tool_calls=TOOLS)], "hello", "hello"),
    'json_schema="..."': ([gen("x", json_schema=json.dumps(SCHEMA))], JSON, JSON),
    "json_schema={...}": ([gen("x", json_schema=SCHEMA)], JSON, {"a": 5}),
    "json_schema=Model": ([gen("x", json_schema=Model)], JSON, Model(a=5)),
}


def check_gens(name: str) -> None:
    expressions, text, value = GENS[name]
    for expression in expressions:
        state = run("p", expression, backend=ScriptedBackend(text))
        assert state["x"] == value
        assert type(state["x"]) is type(value)
        assert state.text("x") == text
        assert state.text() == "p" + text


def check_unnamed() -> None:
    state = run("p", gen(), backend=ScriptedBackend("free"))
    assert state.text() == "pfree"
    with pytest.raises(UnknownVariableError):
        _ = state["x"]


def check_samples() -> None:
    backend = ScriptedBackend(lambda call: ['{"a":1}', '{"a":2}', '{"a":3}'])
    texts = ['{"a":1}', '{"a":2}', '{"a":3}']
    for schema, values in (
        (None, texts),
        (SCHEMA, [{"a": 1}, {"a": 2}, {"a": 3}]),
        (Model, [Model(a=1), Model(a=2), Model(a=3)]),
    ):
        state = run("p", gen("x", n=3, json_schema=schema), backend=backend)
        assert state["x"] == values
        assert state.text("x") == texts
        assert state.text() == 'p{"a":1}'
    state = run("p", gen("x", n=2, dtype=int), backend=ScriptedBackend([["1", "2"]]))
    assert state["x"] == ["1", "2"]


def check_scope() -> None:
    @function
    def program(s: ProgramState) -> None:
        with s.var_scope("x"):
            s += "a " + gen("y", dtype=int) + " b"

    assert program.run(backend=ScriptedBackend("5"))["x"] == "a 5 b"


def check_assigned() -> None:
    value = object()

    @function
    def program(s: ProgramState) -> None:
        s += "p"
        s["x"] = value

    state = program.run(backend=ScriptedBackend())
    assert state["x"] is value
    assert state.text() == "p"


def check_forks() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        forks = s.fork(3)
        for index in (0, 2):
            forks[index] += gen("x", json_schema=Model)
            with forks[index].var_scope("y"):
                forks[index] += f"scope {index}"
        forks.join()

    state = program.run(backend=ScriptedBackend(JSON))
    assert state["x"] == [Model(a=5), None, Model(a=5)]
    assert state["y"] == ["scope 0", None, "scope 2"]
    assert state.text() == "p"


OTHERS: dict[str, Callable[[], None]] = {
    "`gen()`": check_unnamed,
    "any gen with `n=3`": check_samples,
    "with s.var_scope": check_scope,
    '`s["x"] = value`': check_assigned,
    "`forks`, after": check_forks,
}


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_row_tells_what_the_variable_is(row: tuple[str, ...]) -> None:
    assert len(row) == 3
    (name,) = [name for name in (*GENS, *OTHERS) if name in row[0]]
    if name in OTHERS:
        OTHERS[name]()
        return
    check_gens(name)
    if isinstance(GENS[name][2], str):
        assert "the text" in row[2]
        shown = re.search(r"`([^`]*s\[.*)`", row[2])
        if shown:  # how to make a value of it
            expression = shown.group(1).replace('s["x"]', "text")
            assert eval(expression, {"json": json, "text": GENS[name][2]}) is not None


def test_the_table_is_whole() -> None:
    assert len(ROWS) == len(GENS) + len(OTHERS)
