from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import (
    BackendError,
    EngineClosedError,
    EspalierError,
    GenerationError,
    UserInputError,
)
from espalier.lang.api import gen, select
from espalier.lang.failure import Failure
from espalier.lang.function import function
from espalier.lang.location import SourceLine, call_site
from espalier.lang.state import ProgramState


class BoomError(Exception):
    pass


def fails_after(marker: str) -> ScriptedBackend:
    def answer(call: ScriptedCall) -> str | BaseException:
        return BoomError("boom") if call.text.endswith(marker) else "ok"

    return ScriptedBackend(answer)


@function
def program(s: ProgramState) -> int:
    s += "a" + gen("first")
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    s += "BAD" + gen("second")
    s += "c" + gen("third")
    return line


def test_t60_an_error_is_raised_where_the_variable_is_read() -> None:
    state = program.run(backend=fails_after("BAD"))
    assert state["first"] == "ok"
    with pytest.raises(GenerationError, match=r"gen 'second'.*failed: BoomError: boom") as caught:
        _ = state["second"]
    assert isinstance(caught.value, EspalierError)
    assert isinstance(caught.value.__cause__, BoomError)
    assert caught.value.variable == "second"
    assert caught.value.location == f"{__file__}:{state.ret_value}"
    assert caught.value.location in str(caught.value)


def test_t60_text_sync_messages_and_meta_info_raise_the_same() -> None:
    state = program.run(backend=fails_after("BAD"))
    for read in (state.text, state.sync, state.messages, lambda: state.get_meta_info("second")):
        with pytest.raises(GenerationError, match="gen 'second'") as caught:
            read()
        assert isinstance(caught.value.__cause__, BoomError)
    assert isinstance(state.error(), GenerationError)


def test_t60_each_reader_gets_an_exception_of_its_own() -> None:
    state = program.run(backend=fails_after("BAD"))
    assert state.error() is not state.error()


def test_t60_later_gens_are_cancelled_and_say_why() -> None:
    backend = fails_after("BAD")
    state = program.run(backend=backend)
    with pytest.raises(
        GenerationError, match=r"gen 'third'.*cancelled.*gen 'second'.*boom"
    ) as caught:
        _ = state["third"]
    assert caught.value.variable == "third"
    assert isinstance(caught.value.__cause__, BoomError)
    assert len(backend.calls) == 2


def test_t60_the_same_expression_appended_twice_fails_once() -> None:
    @function
    def twice(s: ProgramState) -> None:
        expression = gen("x")
        s += "BAD" + expression
        s["kept"] = 1
        s += expression

    state = twice.run(backend=fails_after("BAD"))
    with pytest.raises(GenerationError, match="was cancelled"):
        _ = state["x"]
    assert state["kept"] == 1


def test_t60_a_select_and_a_var_scope_fail_likewise() -> None:
    @function
    def choosing(s: ProgramState) -> None:
        with s.var_scope("scope"):
            s += "BAD" + select("x", ["a", "b"])

    state = choosing.run(backend=fails_after("BAD"))
    with pytest.raises(GenerationError, match=r"select 'x'.*failed"):
        _ = state["x"]
    with pytest.raises(GenerationError, match=r"var_scope 'scope'.*cancelled.*select 'x'"):
        _ = state["scope"]


def test_t60_other_states_are_unaffected() -> None:
    @function
    def forking(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(3)
        forks += ["BAD", "fine", "fine"]
        forks += gen("x")
        s += gen("mine")
        assert s["mine"] == "ok"
        assert [forks[1]["x"], forks[2]["x"]] == ["ok", "ok"]
        with pytest.raises(GenerationError, match="gen 'x'"):
            _ = forks[0]["x"]

    forking.run(backend=fails_after("BAD"))


def test_t60_forks_of_a_failed_parent_fail_as_it_did() -> None:
    @function
    def forking(s: ProgramState) -> None:
        s += "BAD" + gen("x")
        forks = s.fork(2)
        forks += gen("y")
        with pytest.raises(GenerationError, match=r"gen 'y'.*cancelled.*gen 'x'"):
            _ = forks[0]["y"]
        with pytest.raises(GenerationError, match=r"gen 'x'.*failed") as caught:
            forks[1].text()
        assert isinstance(caught.value.__cause__, BoomError)

    forking.run(backend=fails_after("BAD"))


def test_an_error_that_nobody_reads_is_no_warning_and_error_returns_it(
    recwarn: pytest.WarningsRecorder,
) -> None:
    state = program.run(backend=fails_after("BAD"))
    assert isinstance(state.error(), GenerationError)
    assert not list(recwarn)
    assert program.run(backend=ScriptedBackend()).error() is None


def test_a_backend_that_was_shut_down_says_so() -> None:
    backend = ScriptedBackend()
    backend.shutdown()
    state = program.run(backend=backend)
    with pytest.raises(GenerationError, match="shut down") as caught:
        _ = state["first"]
    assert isinstance(caught.value.__cause__, EngineClosedError)


def test_a_backend_that_gives_too_few_samples_is_refused() -> None:
    @function
    def sampling(s: ProgramState) -> None:
        s += "a" + gen("x", n=2)

    state = sampling.run(backend=ScriptedBackend([["a"]]))
    with pytest.raises(GenerationError) as caught:
        _ = state["x"]
    assert isinstance(caught.value.__cause__, BackendError)


def test_an_error_of_a_read_inside_the_body_leaves_run() -> None:
    @function
    def reading(s: ProgramState) -> None:
        s += "BAD" + gen("x")
        _ = s["x"]

    with pytest.raises(GenerationError, match="gen 'x'"):
        reading.run(backend=fails_after("BAD"))


@function
def fails_before(s: ProgramState) -> None:
    s += "a" + gen("first")
    raise BoomError("before the second")


@pytest.mark.parametrize("stream", [False, True])
def test_a_name_that_the_body_did_not_come_to_raises_the_bodys_error(stream: bool) -> None:
    if stream:
        state = fails_before.run(backend=ScriptedBackend("ok"), stream=True)
    else:
        (state,) = fails_before.run_batch([{}], backend=ScriptedBackend("ok"), on_error="return")
    assert isinstance(state.error(), BoomError)
    for read in (lambda: state["second"], lambda: list(state.text_iter("second"))):
        with pytest.raises(BoomError, match="before the second"):
            read()


@pytest.mark.parametrize("backend", [5, "smollm2", object(), ScriptedBackend])
def test_a_backend_that_is_none_is_refused_with_what_is_allowed(backend: object) -> None:
    with pytest.raises(UserInputError, match=r"backend is .*; an espalier.Engine"):
        program.run(backend=backend)


@pytest.mark.parametrize("options", [{"stream": "x"}, {"use_thread": 0}, {"ignore_eos": "no"}])
def test_a_flag_of_run_is_true_or_false(options: dict[str, Any]) -> None:
    with pytest.raises(UserInputError, match="True or False is allowed"):
        program.run(backend=ScriptedBackend("ok"), **options)


@pytest.mark.parametrize("dtype", [None, int])
@pytest.mark.parametrize("stop", [5, {"a"}, b"a"])
def test_a_wrong_stop_is_refused_whatever_is_added_to_it(stop: Any, dtype: type | None) -> None:
    @function
    def asks(s: ProgramState) -> None:
        s += "a" + gen("x", stop=stop, dtype=dtype)

    with pytest.raises(UserInputError, match="stop is"):
        asks.run(backend=ScriptedBackend("1"))


def test_a_call_that_stands_in_no_users_file_names_no_line() -> None:
    found: list[SourceLine | None] = []
    own: dict[str, Any] = {
        "__name__": "espalier.cli.inside",
        "call_site": call_site,
        "found": found,
    }
    exec("def body():\n    found.append(call_site())", own)
    thread = threading.Thread(target=own["body"])
    thread.start()
    thread.join()
    own["body"]()
    assert found[0] is None
    assert found[1] is not None
    assert found[1].file == __file__
    failure = Failure(BoomError("boom"), "gen 'x'")
    assert str(failure.raised()) == "gen 'x' failed: BoomError: boom"
    other = failure.raised_for(object(), "gen 'y'", "y", None)()
    assert str(other) == "gen 'y' was cancelled: gen 'x' failed: BoomError: boom"
