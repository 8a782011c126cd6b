from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import (
    BackendError,
    EngineClosedError,
    GenerationError,
    UserInputError,
)
from espalier.lang.api import gen
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


class LeavesError(BaseException):
    pass


def test_what_is_no_exception_fails_its_call_and_leaves_the_loop_running() -> None:
    def leaves(call: ScriptedCall) -> str:
        raise LeavesError if call.text == "leave" else SystemExit(3)

    @function
    def ask(s: ProgramState, text: str) -> None:
        s += text + gen("x")

    for text, kind in (("leave", "LeavesError"), ("exit", "SystemExit: 3")):
        with pytest.raises(GenerationError, match=kind):
            ask.run(text, backend=ScriptedBackend(leaves), timeout=20)["x"]
    assert ask.run("a", backend=ScriptedBackend("ok"), timeout=20)["x"] == "ok"
