"""A trace goes no way that a run would not go, whatever a body asks of unknown values."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import json
import logging
from typing import Any

import pytest
from tests.lang.traceable_programs import echoing_backend, made, seen

import espalier as sgl
from espalier.errors import ProgramError, TraceError


def looks_up_in_a_set(s: Any, q: Any) -> None:
    s += "yes" if q in {"a", "b"} else "no"


def looks_up_in_a_dict(s: Any, q: Any) -> None:
    s += {"a": "yes"}.get(q, "no")


def uses_an_attribute(s: Any, q: Any) -> None:
    s += q.name


def asks_whether_it_has_one(s: Any, q: Any) -> None:
    s += "many" if hasattr(q, "__iter__") else "one"


def asks_for_an_abstract_type(s: Any, q: Any) -> None:
    s += "mapping" if isinstance(q, collections.abc.Mapping) else "other"


@functools.singledispatch
def shown_as(value: Any) -> str:
    return "other"


def dispatches(s: Any, q: Any) -> None:
    s += shown_as(q)


def spells(s: Any, q: Any) -> None:
    s += f"{q!r}"


def takes_its_fields(s: Any, q: Any) -> None:
    s += dataclasses.asdict(q)["name"]


def compares_joined_text(s: Any, q: Any) -> None:
    line = "Q: " + q
    s += "yes" if line == "Q: a" else "no"


def spells_joined_text(s: Any, q: Any) -> None:
    s += str("Q: " + q)


def goes_through_joined_text(s: Any, q: Any) -> None:
    for letter in "Q: " + q:
        s += letter


def asks_for_the_type_of_joined_text(s: Any, q: Any) -> None:
    s += "text" if isinstance("Q: " + q, str) else "other"


def spells_a_state(s: Any, q: Any) -> None:
    s += q + str(s.fork(1)[0])


def forks_by_it(s: Any, q: Any) -> None:
    s.fork(q)


def reads_by_it(s: Any, q: Any) -> None:
    s += s[q]


def begins_a_scope_by_it(s: Any, q: Any) -> None:
    with s.var_scope(q):
        s += "text"


def gives_it_as_an_option(s: Any, q: Any) -> None:
    sgl.function(forks_by_it).run(1, stop=q)


def sets_an_object_that_holds_it(s: Any, q: Any) -> None:
    s["pair"] = functools.partial(print, q)


@pytest.mark.parametrize(
    "body",
    [
        looks_up_in_a_set,
        looks_up_in_a_dict,
        uses_an_attribute,
        asks_whether_it_has_one,
        asks_for_an_abstract_type,
        dispatches,
        spells,
        takes_its_fields,
        compares_joined_text,
        spells_joined_text,
        goes_through_joined_text,
        asks_for_the_type_of_joined_text,
        spells_a_state,
        forks_by_it,
        reads_by_it,
        begins_a_scope_by_it,
        gives_it_as_an_option,
        sets_an_object_that_holds_it,
    ],
)
def test_what_needs_a_value_raises_at_the_programs_line(body: Any) -> None:
    with pytest.raises(TraceError, match=r"known only when|set.* a partial") as caught:
        sgl.function(body).trace()
    assert str(caught.value.location).startswith(f"{body.__code__.co_filename}:")


def catches_a_type_error(s: Any) -> None:
    s += "a" + sgl.gen("x")
    try:
        number = int(s["x"])
    except (TypeError, ValueError):
        number = 1
    s += "z" * number


def catches_the_error_of_a_module(s: Any) -> None:
    s += "a" + sgl.gen("x")
    try:
        value = json.loads(s["x"])["key"]
    except Exception:
        value = "nothing"
    s += value


def catches_and_raises_its_own(s: Any) -> None:
    s += "a" + sgl.gen("x")
    try:
        len(s["x"])
    except TypeError:
        raise KeyError("no length") from None


@pytest.mark.parametrize(
    "body", [catches_a_type_error, catches_the_error_of_a_module, catches_and_raises_its_own]
)
def test_a_body_that_catches_the_error_is_not_traced_further(body: Any) -> None:
    with pytest.raises(TraceError, match=r"variable 'x'") as caught:
        sgl.function(body).trace()
    graph: Any = caught.value.graph
    assert [repr(node) for node in graph.nodes] == ["Constant('a')", "Gen('x')"]


def test_logging_a_value_is_no_question() -> None:
    @sgl.function
    def f(s: Any, q: str) -> None:
        logging.getLogger("tests.trace").warning("asked %r", q)
        s += q

    assert [repr(node) for node in f.trace().nodes] == ["Argument(q)"]


class Tone(enum.Enum):
    PLAIN = 1
    WARM = 2


def test_parameters_with_defaults_that_are_objects_keep_them() -> None:
    @sgl.function
    def f(s: Any, tone: Tone = Tone.PLAIN) -> None:
        s += "plain" if tone is Tone.PLAIN else "warm"

    assert f.compile().run(backend=echoing_backend()).text() == "plain"
    assert f.compile(tone=Tone.WARM).run(backend=echoing_backend()).text() == "warm"


def test_a_bug_with_known_values_only_is_logged_when_a_prefix_is_traced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @sgl.function
    def f(s: Any) -> None:
        s += "Constant text. "
        s += "a" + 3  # type: ignore[operator]

    with caplog.at_level(logging.WARNING, "espalier.lang"):
        assert f.cache(echoing_backend()) == 3
    assert "can only concatenate str" in caplog.text


def test_joined_text_may_be_an_argument_of_a_call() -> None:
    @sgl.function
    def f(s: Any, name: str, count: int) -> Any:
        s += "x" + sgl.gen("v", stop="\n" + name + ":", n=count)
        s += sgl.select("w", choices=["yes " + name, "no"])
        return "By " + s["w"]

    plain, compiled = echoing_backend(), echoing_backend()
    wanted = seen(f.run(name="Ann", count=2, backend=plain, seed=1))
    assert seen(f.compile().run(name="Ann", count=2, backend=compiled, seed=1)) == wanted
    assert made(compiled) == made(plain)


def test_a_fork_knows_the_scopes_of_its_parent() -> None:
    @sgl.function
    def f(s: Any) -> None:
        with s.var_scope("part"):
            s += "in" + sgl.gen("a")
            forks = s.fork(1)
        forks[0] += "c" + sgl.gen("y") if "part" in forks[0] else "none"
        forks.join()

    @sgl.function
    def g(s: Any) -> None:
        s += "k" + sgl.gen("part")
        with s.var_scope("part"):
            forks = s.fork(1)
            forks[0] += forks[0]["part"]

    assert seen(f.compile().run(backend=echoing_backend(), seed=1)) == seen(
        f.run(backend=echoing_backend(), seed=1)
    )
    for attempt in (g.trace, lambda: g.run(backend=echoing_backend())):
        with pytest.raises(ProgramError, match="inside its own var_scope block"):
            attempt()
