"""A user's program with types of its own, as `mypy --strict` sees it (run by test_typed.py).

What a type checker must refuse is marked: a mark that nothing needs is an error too.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from typing_extensions import assert_type

import espalier as sgl
from espalier import ProgramState, Usage, assistant, gen, gen_int, gen_string, select, user


class City(BaseModel):
    name: str
    inhabitants: int


@sgl.function
def facts(s: ProgramState, country: str, *, detail: bool = False) -> str:
    s += user(f"The capital of {country}?")
    s += assistant(gen("city", json_schema=City, stop_regex=[r"\n+", "END"]))
    city: City = s["city"]
    s += "Its size is " + select("size", ["small", "large"])
    s += [gen_int("number", 4), gen_string("word", stop_regex="x+")]
    assert_type(s["number"], Any)
    if detail:
        with s.user():
            s += "More?"
    forks = s.fork(2)
    forks += gen("tip", n=2, stop="\n")
    forks.join()
    with s.var_scope("line"):
        s += gen(temperature=0.5, top_p=0.9, seed=3)
    tips: list[list[str]] = s["tip"]
    return city.name + tips[0][0]


@sgl.function
async def later(s: ProgramState) -> None:
    s += "p" + gen("x")
    assert_type(await s.aget("x"), Any)
    assert_type(await s.atext(), str)


def use(backend: sgl.ScriptedBackend) -> tuple[str, Usage]:
    state = facts.run("Peru", detail=True, temperature=0.1, stop_regex="z{3}", backend=backend)
    assert_type(state, ProgramState)
    assert_type(state.text(), str)
    assert_type(state.messages(), list[dict[str, Any]])
    assert_type(state.usage(), Usage)
    assert_type(state.error(), BaseException | None)
    for piece in state.text_iter("city"):
        assert_type(piece, str)
    states = facts.run_batch([{"country": "Peru"}], backend=backend, stop_regex=["z{3}"])
    assert_type(states, list[ProgramState])
    bound = facts.bind(country="Peru")
    return bound(backend=backend).text(), states[0].usage()


def what_is_refused() -> None:
    gen("x", stop_regex=5)  # type: ignore[arg-type]
    gen(5)  # type: ignore[arg-type]
    gen("x", max_token=5)  # type: ignore[call-arg]
    gen_int("x", dtype=str)  # type: ignore[call-arg]
    select("x", [1, 2])  # type: ignore[list-item]
