"""What a user may get wrong raises at once, where it is written, and says what to do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend
from espalier.errors import (
    EspalierError,
    GenerationError,
    ProgramError,
    RoleError,
    UnknownVariableError,
    UserInputError,
)
from espalier.lang.api import assistant, gen, select, separate_reasoning, system_end, user
from espalier.lang.function import function
from espalier.lang.state import ProgramState


@function
def asks(s: ProgramState, question: str, colour: str = "red") -> None:
    s += question + gen("answer")


def finished(text: str = "q") -> ProgramState:
    state = asks.run(text, backend=ScriptedBackend())
    state.sync()
    return state


# Primitives outside a program, and states after one.


@pytest.mark.parametrize(
    "wrong", [lambda: gen("x") + 1, lambda: 1 + gen("x"), lambda: gen("x") + None]
)
def test_an_expression_takes_text_and_expressions_alone(wrong: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        wrong()


def test_an_expression_in_a_formatted_text_is_refused() -> None:
    with pytest.raises(UserInputError, match=r"put into an f-string, which makes no call"):
        _ = f"{gen('x')}"


@pytest.mark.parametrize(
    "value", [None, 5, 1.5, b"a", {"a": 1}, object(), lambda: "x", [None], ["a", 3]]
)
def test_what_is_no_expression_is_refused_and_nothing_is_appended(value: object) -> None:
    state = finished()
    with pytest.raises(UserInputError, match="was appended to a state"):
        state += value
    assert state.text() == "qok"


def test_a_state_may_be_appended_to_after_its_program_and_in_another_thread() -> None:
    state = finished()

    def work() -> None:
        state.__iadd__(" more" + gen("later"))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert state.text() == "qok moreok"


def test_a_state_may_be_used_in_another_thread_while_its_program_runs() -> None:
    @function
    def program(s: ProgramState) -> None:
        threads = [threading.Thread(target=lambda: s.__iadd__("a" + gen())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert program.run(backend=ScriptedBackend()).text() == "aok" * 4


def test_a_run_without_a_backend_says_how_to_give_one() -> None:
    with pytest.raises(ProgramError, match="set_default_backend"):
        asks.run("q")


# Roles and scopes.


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: s.user(user("nested")),
        lambda s: s.__iadd__(user("a" + assistant("b"))),
        lambda s: s.__iadd__(system_end()),
        lambda s: s.assistant_end(),
    ],
)
def test_roles_that_do_not_fit_raise_where_they_are_written(
    wrong: Callable[[ProgramState], object],
) -> None:
    state = finished()
    with pytest.raises(RoleError, match=r"Nested roles|while no role is open"):
        wrong(state)
    assert state.messages() == []
    state += user("fine")
    assert len(state.messages()) == 1


def test_a_scope_with_the_name_of_an_open_one_is_refused() -> None:
    state = finished()
    with state.var_scope("v"):
        state += "a"
        with pytest.raises(ProgramError, match=r"var_scope 'v' begins inside.*another name"):
            with state.var_scope("v"):
                pass
        with state.var_scope("w"):
            state += "b"
    assert (state["v"], state["w"]) == ("ab", "b")
    with state.var_scope("v"):  # again, after the first has ended
        state += "c"
    assert state["v"] == "c"


@pytest.mark.parametrize("name", [3, None, ["a"]])
def test_names_are_text(name: Any) -> None:
    state = finished()
    attempts: list[Callable[[], object]] = [
        lambda: state.var_scope(name),
        lambda: state.set_var(name, 1),
    ]
    for wrong in attempts:
        with pytest.raises(UserInputError, match="variable name is"):
            wrong()
    if name is None:
        return  # a call without a name
    with pytest.raises(UserInputError, match="variable name is"):
        gen(name)
    with pytest.raises(UserInputError, match="variable name is"):
        select(name, ["a"])


# Joins.


def test_joining_twice_and_appending_after_it_raise() -> None:
    state = finished()
    forks = state.fork(2)
    forks += gen("x")
    forks.join()
    for wrong in (
        forks.join,
        lambda: forks.join("concat_text"),
        lambda: forks.__iadd__("a"),
        lambda: forks[0].__iadd__("a"),
        lambda: forks[1].fork(2),
        lambda: forks[0].user("a"),
        lambda: forks[0].set_var("y", 1),
    ):
        with pytest.raises(ProgramError, match="has been joined"):
            wrong()
    assert state["x"] == ["ok", "ok"]
    assert forks[0].text() == "qokok"


# Unknown arguments.


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: asks.run(qestion="q"), r"'qestion'.*did you mean 'question'"),
        (lambda: asks.run("q", color="red"), r"'color'.*did you mean 'colour'"),
        (lambda: asks.run("q", temprature=0.5), r"'temprature'.*did you mean 'temperature'"),
        (lambda: asks.run("q", max_tokens=5), r"'max_tokens'.*did you mean 'max_new_tokens'"),
        (lambda: asks.bind(colr="x"), r"'colr'.*did you mean 'colour'"),
        (lambda: asks.run_batch([{"qestion": "q"}]), r"item 0.*'qestion'.*did you mean 'question'"),
        (lambda: asks.run_batch([], num_thread=4), "num_thread.*did you mean 'num_threads'"),
        (lambda: asks.run("q", zzz=1), r"unexpected keyword argument 'zzz'"),
        (lambda: gen("x", tempature=1), "tempature"),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_an_unknown_argument_raises_and_names_what_is_near(
    wrong: Callable[[], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        wrong()


def test_missing_arguments_raise_and_run_nothing() -> None:
    backend = ScriptedBackend()
    with pytest.raises(TypeError, match="question"):
        asks.run(backend=backend)
    assert not backend.calls


# Names that clash.


def test_a_name_in_forks_and_later_in_the_parent_stays_the_parents() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        forks = s.fork(2)
        forks += "c" + gen("x")
        s += "mine" + gen("x")
        forks.join()
        assert [fork["x"] for fork in forks] == ["ok", "ok"]

    assert program.run(backend=ScriptedBackend())["x"] == "ok"  # as in the reference: no list


def test_a_later_call_of_a_name_is_what_the_name_stands_for() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x") + "b" + gen("x")

    assert program.run(backend=ScriptedBackend(["1", "2"]))["x"] == "2"


@pytest.mark.parametrize("where", ["before", "inside"])
def test_a_gen_named_like_the_reasoning_of_another_is_refused(where: str) -> None:
    @function
    def program(s: ProgramState) -> None:
        separated = separate_reasoning(gen("x"), "deepseek-r1")
        other = gen("x_reasoning_content")
        if where == "inside":
            s += "a" + other + separated
        else:
            s += "a" + other
            s += separated

    with pytest.raises(ProgramError, match=r"'x_reasoning_content'.*another name"):
        program.run(backend=ScriptedBackend("ok")).sync()


# Reads.


def test_reads_that_can_never_end_raise_at_once() -> None:
    state = finished()
    with pytest.raises(UnknownVariableError, match=r"no variable 'anser'.*'answer'"):
        _ = state["anser"]
    with pytest.raises(UnknownVariableError):
        state.get_var("never", timeout=60)
    with pytest.raises(UnknownVariableError):
        list(state.text_iter("never"))


def test_a_value_error_of_the_reference_is_one_here_and_espaliers_own() -> None:
    state = finished()
    for wrong in (lambda: state.__iadd__(None), lambda: state.fork(2).join("zip")):
        with pytest.raises(ValueError, match="allowed") as caught:
            wrong()
        assert isinstance(caught.value, EspalierError)


def test_an_empty_prompt_fails_the_call_and_not_the_process() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += gen("x")

    with pytest.raises(GenerationError, match="prompt is empty"):
        program.run(backend=ScriptedBackend()).sync()
