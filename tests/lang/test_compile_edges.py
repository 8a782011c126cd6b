"""What compiled programs do at the edges: values that are no text, errors, batches, odd graphs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.lang.traceable_programs import echoing_backend, made, seen

import espalier as sgl
from espalier.errors import (
    BatchError,
    GenerationError,
    ProgramTimeoutError,
    TraceError,
    UserInputError,
)
from espalier.lang.graph_json import graph_from_json

LIST = {"type": "array", "items": {"type": "string"}}
NUMBER = {"type": "integer"}


def same(function: Any, answer: Any, **options: Any) -> Any:
    """What a program's run leaves, where its compiled run leaves the same."""
    wanted = seen(function.run(backend=sgl.ScriptedBackend(answer), **options))
    assert seen(function.compile().run(backend=sgl.ScriptedBackend(answer), **options)) == wanted
    return wanted


def test_a_list_that_was_generated_may_be_appended() -> None:
    @sgl.function
    def f(s: Any) -> None:
        s += "x" + sgl.gen("v", json_schema=LIST)
        s += s["v"]

    @sgl.function
    def g(s: Any) -> None:
        s += "x" + sgl.gen("v")
        s += s["v"]

    assert same(f, '["a", "b"]')["text"] == 'x["a", "b"]ab'
    assert seen(g.compile().run(backend=echoing_backend(), n=2, seed=1)) == seen(
        g.run(backend=echoing_backend(), n=2, seed=1)
    )


def test_values_are_added_as_python_adds_them() -> None:
    @sgl.function
    def f(s: Any) -> Any:
        s += "x" + sgl.gen("v", json_schema=NUMBER) + sgl.gen("w", json_schema=NUMBER)
        return s["v"] + s["w"]

    assert same(f, "3")["returned"] == 6


def test_a_value_that_is_no_text_raises_where_it_is_appended() -> None:
    @sgl.function
    def f(s: Any) -> None:
        s += "x" + sgl.gen("v", json_schema=NUMBER)
        s += s["v"]

    for run in (f.run, f.compile().run):
        with pytest.raises(UserInputError, match="int 3 was appended"):
            run(backend=sgl.ScriptedBackend("3"))


def test_messages_may_be_returned() -> None:
    @sgl.function
    def f(s: Any) -> Any:
        return sgl.user("x")

    assert f.compile().run(backend=echoing_backend()).ret_value == sgl.user("x")


def test_usage_counts_what_the_program_has_waited_for() -> None:
    @sgl.function
    def f(s: Any) -> Any:
        s += "x" + sgl.gen("v")
        forks = s.fork(2)
        forks += "a" + sgl.gen("w")
        forks.join()
        before = s.usage()
        s += "b" + sgl.gen("o")
        return [before, s.usage(), s.usage("w")]

    for run in (f.run, f.compile().run, f.compile(outputs=["v"]).run):
        found = run(backend=echoing_backend(latency_s=0.01)).ret_value
        assert [usage.calls for usage in found] == [3, 4, 2]


def test_usage_of_a_state_that_failed_is_answered() -> None:
    @sgl.function
    def f(s: Any) -> Any:
        s += "x" + sgl.gen("v")
        return s.usage()

    for run in (f.run, f.compile().run):
        assert run(backend=sgl.ScriptedBackend(ValueError("no"))).ret_value.calls == 0


def failing() -> sgl.ScriptedBackend:
    def answer(call: Any) -> str:
        raise ValueError(f"no {call.text}")

    return sgl.ScriptedBackend(answer)


def appends_wrongly(s: Any, forks: Any, none: Any) -> None:
    s += none


def sets_a_part(s: Any, forks: Any, none: Any) -> None:
    s["n"] = "a" + forks[1]["y"]


@pytest.mark.parametrize("later", [appends_wrongly, sets_a_part])
def test_the_first_line_that_raises_is_the_one_that_is_told(
    later: Callable[..., None],
) -> None:
    @sgl.function
    def f(s: Any, none: Any) -> None:
        forks = s.fork(2)
        forks[0] += "A" + sgl.gen("x")
        forks[1] += "B" + sgl.gen("y")
        s += forks[0]["x"]
        later(s, forks, none)

    for run in (f.run, f.compile().run):
        with pytest.raises(GenerationError, match=r"gen 'x' .* no A"):
            run(none=None, backend=failing())


def test_a_failed_scope_names_its_line() -> None:
    @sgl.function
    def f(s: Any) -> None:
        with s.var_scope("part"):
            s += "in" + sgl.gen("a")

    errors = []
    for run in (f.run, f.compile().run):
        with pytest.raises(GenerationError) as caught:
            _ = run(backend=failing())["part"]
        errors.append(str(caught.value))
    assert errors[0] == errors[1]


def test_what_was_cancelled_for_the_sake_of_another_is_not_what_is_told() -> None:
    @sgl.function
    def f(s: Any) -> None:
        s += "go"
        forks = s.fork(2)
        more = forks[1].fork(2)
        more += "c" + sgl.gen("z")
        more.join("concat_text", "cancel")
        forks[0] += "a" + sgl.gen("v", timeout=0.05)
        forks.join("concat_text", "cancel")
        s += s["v"][0]

    for run in (f.run, f.compile().run):
        with pytest.raises(GenerationError, match=r"gen 'v' .* failed: ProgramTimeoutError"):
            run(backend=echoing_backend(latency_s=0.15))


def test_forks_into_no_states_are_joined_by_their_own_state() -> None:
    @sgl.function
    def f(s: Any) -> None:
        none = s.fork(0)
        one = s.fork(1)
        one[0].fork(0)
        one.join()
        none.join()

    assert seen(f.compile().run(backend=echoing_backend()))["text"] == ""


def test_a_program_that_is_run_keeps_its_timeout_and_its_name() -> None:
    @sgl.function
    def slow(s: Any) -> None:
        s += "x" + sgl.gen("v")

    @sgl.function
    def f(s: Any) -> None:
        s += slow.run(timeout=0.05)["v"]

    for run in (f.run, f.compile().run):
        with pytest.raises(GenerationError, match="program 'slow' did not end") as caught:
            run(backend=echoing_backend(latency_s=5))
        assert isinstance(caught.value.__cause__, ProgramTimeoutError)


# Batches.


@sgl.function
def look(s: Any, place: str) -> None:
    s += "Look at " + place + sgl.gen("a") + "then" + sgl.gen("b")


def test_an_item_that_is_wrong_fails_alone() -> None:
    items: list[dict[str, Any]] = [{"place": "a"}, {"place": None}, {"place": "b"}]
    compiled = look.compile()
    states = compiled.run_batch(items, backend=echoing_backend(), on_error="return")
    assert [type(state.error()).__name__ for state in states] == [
        "NoneType",
        "UserInputError",
        "NoneType",
    ]
    with pytest.raises(BatchError, match="item 1 of the batch failed"):
        compiled.run_batch(items, backend=echoing_backend())


def test_items_that_are_no_dicts_are_refused_by_what_they_are() -> None:
    compiled = look.compile()
    with pytest.raises(TypeError, match=r"item 0 of the batch: look\(\): too many positional"):
        compiled.run_batch([["a"]], backend=echoing_backend())  # type: ignore[list-item]
    wrong: Any
    for wrong in ([["a"]], [None], "ab", None, 5, {"place": "x"}):
        with pytest.raises(UserInputError, match=r"a dict of arguments|a list of dicts"):
            compiled.suggest(wrong)


def test_on_result_gets_what_the_batch_returns() -> None:
    told: list[Any] = []
    look.compile(outputs=["a"]).run_batch(
        [{"place": "x"}], backend=echoing_backend(), on_result=lambda _, state: told.append(state)
    )
    with pytest.raises(sgl.ProgramError, match="compiled for the outputs 'a'"):
        told[0].text()


def test_an_async_program_that_is_traced_in_part_runs() -> None:
    @sgl.function
    async def f(s: Any, place: str) -> Any:
        s += "Look at " + place + sgl.gen("a")
        return "x" if len(await s.aget("a")) > 1 else "y"

    compiled = f.compile(partial=True)
    assert seen(compiled.run(place="q", backend=echoing_backend(), seed=1)) == seen(
        f.run(place="q", backend=echoing_backend(), seed=1)
    )


def test_a_compiled_program_in_one_that_is_traced_says_so() -> None:
    compiled = look.compile()

    @sgl.function
    def f(s: Any) -> None:
        s += compiled(place="x")["a"]

    with pytest.raises(TraceError, match="runs the compiled program 'look'"):
        f.compile()


# Dropping.


@sgl.function
def inner(s: Any, q: str) -> Any:
    forks = s.fork(2)
    forks += q + sgl.gen("v")
    forks.join()
    s += q + sgl.gen("z")
    return s["z"]


def asks_for_text(s: Any) -> Any:
    forks = s.fork(2)
    forks += "a" + sgl.gen("v")
    forks.join()
    s += "b" + sgl.gen("o")
    return s.text("v")


def asks_in_vain(s: Any) -> None:
    forks = s.fork(2)
    forks += "a" + sgl.gen("v")
    forks.join()
    s.get_meta_info("v")
    s["w"] = s.text("v")
    s += "b" + sgl.gen("o")


def runs_in_vain(s: Any) -> None:
    inner("k")
    s += "b" + sgl.gen("o")


@pytest.mark.parametrize(
    ("body", "calls"), [(asks_for_text, 3), (asks_in_vain, 1), (runs_in_vain, 1)]
)
def test_what_states_are_asked_is_kept_where_it_is_needed(body: Any, calls: int) -> None:
    function = sgl.function(body)
    wanted = function.run(backend=echoing_backend(), seed=7)
    backend = echoing_backend()
    state = function.compile(outputs=["o"]).run(backend=backend, seed=7)
    assert state["o"] == wanted["o"]
    assert state.ret_value == wanted.ret_value
    assert len(made(backend)) == calls


def test_a_state_that_is_returned_is_kept_whole() -> None:
    @sgl.function
    def f(s: Any) -> Any:
        s += "b" + sgl.gen("o")
        return inner("k")

    wanted = f.run(backend=echoing_backend(), seed=7).ret_value
    kept = f.compile(outputs=["o"]).run(backend=echoing_backend(), seed=7).ret_value
    assert seen(kept) == seen(wanted)


def test_a_long_chain_of_programs_is_no_deep_recursion() -> None:
    @sgl.function
    def step(s: Any, q: str) -> None:
        s += q + sgl.gen("v")

    @sgl.function
    def f(s: Any) -> None:
        text = "a"
        for _ in range(400):
            text = step(text)["v"]
        s += text + sgl.gen("o")

    assert len(f.compile(outputs=["o"]).graph.calls) == 401


# Graphs from outside.


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    """The graph of a program as JSON values, with another value at one place."""
    values: dict[str, Any] = json.loads(json.dumps(WHOLE.compile().to_json()))
    found: Any = values
    for key in path[:-1]:
        found = found[key]
    found[path[-1]] = value
    return values


@sgl.function
def WHOLE(s: Any, word: str) -> Any:
    with s.var_scope("part"):
        s += word + sgl.gen("a", max_tokens=3)
    forks = s.fork(2)
    forks += "x" + sgl.gen("b")
    forks.join()
    s += s["b"][0] + sgl.gen("c", stop=word)
    return s.text()


DEEP: Any = []
for _ in range(300):
    DEEP = [DEEP]


def at(kind: str, field: str) -> list[Any]:
    """Where the field of the first node of a kind is."""
    nodes = WHOLE.compile().to_json()["nodes"]
    index = next(
        i
        for i, node in enumerate(nodes)
        if kind in (node["kind"], node.get("expr", {}).get("kind"))
    )
    is_expr = nodes[index]["kind"] != kind
    return ["nodes", index, *(["expr"] if is_expr else []), field]


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("variable", "node", 999),
        ("variable", "node", -1),
        ("argument", "name", "other"),
        ("gen", "sampling", {"kind": "dict", "pairs": [["wrong", 1]]}),
        ("gen", "form", 3),
        ("scope_end", "name", "other"),
        ("deferred", "primitive", "exec"),
        ("fork", "children", {"kind": "tuple", "items": [0, 1]}),
        ("fork", "children", {"kind": "tuple", "items": [1, 1]}),
        ("fork_item", "fork", 0),
        ("join", "mode", "wrong"),
        ("join", "names", {"kind": "tuple", "items": ["zz"]}),
        ("ask", "what", "wrong"),
        ("ask", "name", "zz"),
        ("ask", "state", 77),
        ("constant", "value", None),
        ("constant", "value", DEEP),
        ("constant", "kind", "unknown"),
    ],
)
def test_a_graph_that_cannot_run_is_refused_when_it_is_read(
    kind: str, field: str, value: Any
) -> None:
    path = at(kind, field)
    graph_from_json(changed(path, copy.deepcopy(_found(path))))  # as it was
    with pytest.raises(UserInputError, match=r"graph|join mode"):
        graph_from_json(changed(path, value))


def _found(path: list[Any]) -> Any:
    found: Any = json.loads(json.dumps(WHOLE.compile().to_json()))
    for key in path:
        found = found[key]
    return found
