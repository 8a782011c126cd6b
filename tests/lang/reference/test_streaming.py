from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from espalier.backends.base import GenerateCall, GenerateResult, OnDelta, Sample
from espalier.backends.scripted import ScriptedBackend
from espalier.errors import (
    BackendError,
    GenerationError,
    ProgramError,
    RequestCancelledError,
    UnknownVariableError,
    UserInputError,
)
from espalier.lang.api import gen, select, user
from espalier.lang.function import function
from espalier.lang.state import ProgramState
from espalier.types import Usage


@function
def program(s: ProgramState) -> None:
    s += user("q ")
    s += gen("x", stop="STOP")
    s += "|"
    s += select("c", ["yes", "no"])
    with s.var_scope("v"):
        s += "tail" + gen("y")


SCRIPT = {"q ": "one two three four STOP not this", "|": "yes", "tail": " five six"}
TEXT = "USER:q \none two three four |yestail five six"


def streaming(backend: ScriptedBackend | None = None, **options: Any) -> ProgramState:
    backend = backend or ScriptedBackend(SCRIPT, latency_s=0.01)
    return program.run(stream=True, backend=backend, **options)


def test_t80_the_pieces_joined_are_the_final_text() -> None:
    state = streaming()
    pieces = list(state.text_iter())
    assert "".join(pieces) == state.text() == TEXT
    assert len(pieces) > 4
    assert all(pieces)


@pytest.mark.parametrize(
    ("name", "text"),
    [("x", "one two three four "), ("c", "yes"), ("y", " five six"), ("v", "tail five six")],
)
def test_t80_the_pieces_of_a_variable_joined_are_its_value(name: str, text: str) -> None:
    state = streaming()
    assert "".join(state.text_iter(name)) == state[name] == text


def test_without_stream_an_iterator_gives_the_final_value_once() -> None:
    state = program.run(backend=ScriptedBackend(SCRIPT))
    assert list(state.text_iter()) == [TEXT]
    assert list(state.text_iter("x")) == ["one two three four "]
    with pytest.raises(UnknownVariableError):
        list(state.text_iter("never"))


def test_run_with_stream_returns_before_the_body_ends() -> None:
    release = threading.Event()

    @function
    def waiting(s: ProgramState) -> str:
        s += "a"
        release.wait(20)
        s += "b"
        return "done"

    state = waiting.run(stream=True, backend=ScriptedBackend())
    pieces = state.text_iter()
    assert next(pieces) == "a"
    release.set()
    assert list(pieces) == ["b"]
    assert state.ret_value == "done"


def test_a_variable_that_never_appears_gives_one_empty_piece_and_a_read_raises() -> None:
    state = streaming()
    assert list(state.text_iter("never")) == [""]
    with pytest.raises(UnknownVariableError):
        _ = state["never"]


def test_a_read_from_outside_waits_until_the_body_has_submitted_the_name() -> None:
    release = threading.Event()

    @function
    def waiting(s: ProgramState) -> None:
        release.wait(20)
        s += "a" + gen("x")
        release.clear()

    state = waiting.run(stream=True, backend=ScriptedBackend("late"))
    threading.Timer(0.02, release.set).start()
    assert state["x"] == "late"
    with pytest.raises(UnknownVariableError):
        _ = state["never"]


def test_t81_several_iterators_read_one_state() -> None:
    state = streaming()
    found: list[str] = []

    def read(name: str | None) -> None:
        found.append("".join(state.text_iter(name)))

    threads = [threading.Thread(target=read, args=(name,)) for name in (None, None, "x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(found) == sorted([TEXT, TEXT, "one two three four ", " five six"])
    assert "".join(state.text_iter()) == TEXT


def test_t80_an_error_ends_each_iterator_and_is_raised_in_it() -> None:
    backend = ScriptedBackend({**SCRIPT, "|": ValueError("boom")}, latency_s=0.01)
    state = streaming(backend)
    for name in (None, "c", "y"):
        with pytest.raises(GenerationError, match="boom"):
            list(state.text_iter(name))
    assert "".join(state.text_iter("x")) == "one two three four "


def test_t80_an_error_of_the_body_is_raised_in_the_iterator() -> None:
    @function
    def failing(s: ProgramState) -> None:
        s += "a" + gen("x")
        raise KeyError("mine")

    state = failing.run(stream=True, backend=ScriptedBackend(latency_s=30))
    with pytest.raises(KeyError, match="mine"):
        list(state.text_iter())
    assert isinstance(state.error(), KeyError)


def test_t82_waiting_for_pieces_costs_no_time_of_the_processor() -> None:
    state = streaming(ScriptedBackend(SCRIPT, latency_s=0.3))
    before = time.thread_time()
    list(state.text_iter("y"))
    assert time.thread_time() - before < 0.05


def test_t82_characters_are_never_split() -> None:
    text = "héllo 🌍 çava 漢字"
    state = streaming(ScriptedBackend({**SCRIPT, "q ": text}, tokens="byte", latency_s=0.001))
    pieces = list(state.text_iter("x"))
    assert "".join(pieces) == text
    assert not any("�" in piece for piece in pieces)


def test_what_is_added_from_outside_comes_after_the_body() -> None:
    may_go_on = threading.Event()

    @function
    def waiting(s: ProgramState) -> None:
        assert may_go_on.wait(10)
        s += "body "

    def add_to(state: ProgramState) -> None:
        forked.append(state.fork(1)[0])
        state += "added " + gen("x")
        state.set_var("y", 1)

    forked: list[ProgramState] = []
    state = waiting.run(stream=True, backend=ScriptedBackend("generated", latency_s=0.001))
    adding = threading.Thread(target=add_to, args=(state,))
    adding.start()
    assert not forked
    may_go_on.set()
    adding.join(10)
    assert (state.text(), state["y"]) == ("body added generated", 1)
    assert forked[0].text() == "body "


def test_t83_closing_an_iterator_cancels_when_asked_to() -> None:
    backend = ScriptedBackend(SCRIPT, latency_s=30)
    state = streaming(backend)
    pieces = state.text_iter(cancel_on_close=True)
    assert "USER:q \n".startswith(next(pieces))
    pieces.close()  # type: ignore[attr-defined]
    with pytest.raises(RequestCancelledError, match="iterator was closed"):
        state.sync()
    assert backend._in_flight == 0


def test_t83_closing_an_iterator_without_asking_leaves_the_program_alone() -> None:
    state = streaming()
    pieces = state.text_iter()
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert state.text() == TEXT


def test_async_iteration_with_meta_data() -> None:
    async def main() -> None:
        state = streaming()
        pieces = [item async for item in state.text_async_iter("x", return_meta_data=True)]
        assert "".join(text for text, _ in pieces) == "one two three four "
        assert pieces[0][1]["finish_reason"] is None
        assert pieces[-1][1]["finish_reason"] == {"type": "stop", "matched": "STOP"}
        assert "".join([text async for text in state.text_async_iter()]) == TEXT
        assert [text async for text in state.text_async_iter("never")] == [""]

    asyncio.run(main())


def test_async_iteration_without_stream_gives_the_final_value_once() -> None:
    async def main() -> None:
        state = await program.arun(backend=ScriptedBackend(SCRIPT))
        assert [text async for text in state.text_async_iter()] == [TEXT]
        ((text, meta),) = [item async for item in state.text_async_iter("x", return_meta_data=True)]
        assert text == "one two three four "
        assert meta["completion_tokens"] == 5

    asyncio.run(main())


def test_forks_stream_their_own_text() -> None:
    forks: list[ProgramState] = []

    @function
    def forking(s: ProgramState) -> None:
        s += "p"
        group = s.fork(2)
        forks.extend(group)
        group += lambda index: f" {index}" + gen("x")
        group.join("concat_text")

    state = forking.run(stream=True, backend=ScriptedBackend("a b", latency_s=0.01))
    assert "".join(state.text_iter()) == "p 0a b 1a b"
    assert ["".join(fork.text_iter()) for fork in forks] == ["p 0a b", "p 1a b"]
    assert "".join(forks[0].text_iter("x")) == "a b"


@pytest.mark.parametrize("arguments", [{"sample": -1}, {"sample": 1}])
def test_wrong_arguments_raise_at_the_call(arguments: dict[str, Any]) -> None:
    state = program.run(backend=ScriptedBackend(SCRIPT))
    with pytest.raises(UserInputError):
        state.text_iter(**arguments)
    with pytest.raises(UserInputError):
        state.text_async_iter(return_meta_data=True)


def test_a_backend_whose_stream_disagrees_with_its_result_is_refused() -> None:
    class Lying(ScriptedBackend):
        async def generate(
            self, call: GenerateCall, on_delta: OnDelta | None = None
        ) -> GenerateResult:
            assert on_delta is not None
            on_delta(0, "this", {})
            return GenerateResult((Sample("that", None, {}),), Usage(calls=1))

    state = streaming(Lying())
    with pytest.raises(GenerationError, match="no prefix of the final") as caught:
        state.sync()
    assert isinstance(caught.value.__cause__, BackendError)


def test_what_a_variable_lacks_is_refused_by_its_iterator() -> None:
    for state in (streaming(), program.run(backend=ScriptedBackend(SCRIPT))):
        with pytest.raises(UserInputError, match="var_name is 5"):
            state.text_iter(5)  # type: ignore[arg-type]
        with pytest.raises(UserInputError, match="sample 3 is none"):
            list(state.text_iter("x", sample=3))


def test_a_name_asked_for_while_the_body_ends_is_not_waited_for() -> None:
    state = streaming()
    state.sync()
    assert state.stream.variables.appearing("never").done  # as a reader that was a moment late


def test_t61_a_body_that_iterates_over_its_own_text_raises_at_once() -> None:
    @function
    def reading(s: ProgramState) -> None:
        s += "a" + gen("x")
        assert "".join(s.text_iter("x")) == "ok"
        forks = s.fork(2)
        forks += "b"
        forks.join()
        assert "".join(forks[0].text_iter()) == "aokb"
        with pytest.raises(ProgramError, match="would wait for itself"):
            list(s.text_iter())

    state = reading.run(stream=True, backend=ScriptedBackend())
    assert "".join(state.text_iter()) == "aok"
    assert state.error() is None
