from __future__ import annotations

import asyncio
import inspect
import threading
import time
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import (
    EspalierError,
    GenerationError,
    ProgramError,
    RequestCancelledError,
    UnknownVariableError,
)
from espalier.lang.api import gen, select
from espalier.lang.function import function
from espalier.lang.state import ProgramState


def test_reading_a_variable_waits_for_that_variable_only() -> None:
    hold = {"b": 30.0}

    class Slow(ScriptedBackend):
        def _draw_latency(self) -> float:
            return hold.get(self.calls[-1].text[-1], 0.0)

    @function
    def program(s: ProgramState) -> str:
        s += "a" + gen("x") + "b" + gen("y")
        return str(s["x"])

    state = program.run(backend=Slow("!"))
    assert state.ret_value == "!"
    state.cancel()
    with pytest.raises(RequestCancelledError):
        state.sync()


def test_appending_does_not_wait() -> None:
    @function
    def program(s: ProgramState) -> float:
        start = time.monotonic()
        for _ in range(50):
            s += "a" + gen("x")
        return time.monotonic() - start

    state = program.run(backend=ScriptedBackend("", latency_s=30))
    assert state.ret_value < 5
    state.cancel()


def test_set_variables_are_there_at_once_and_win_over_older_ones() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x")
        assert s["x"] == "!"
        s["x"] = [1, 2]
        s.set_var("y", None)

    state = program.run(backend=ScriptedBackend("!"))
    assert state["x"] == [1, 2]
    assert state["y"] is None
    assert state.get_meta_info("x") is None
    assert state.text() == "a!"


def test_t63_in_is_true_for_submitted_names() -> None:
    @function
    def program(s: ProgramState) -> None:
        assert "x" not in s
        s += "a" + gen("x")
        assert "x" in s
        with s.var_scope("v"):
            assert "v" in s

    program.run(backend=ScriptedBackend(latency_s=0.01)).sync()


def test_t61_an_unknown_variable_raises_at_once_and_lists_the_known_ones() -> None:
    state = _one_gen()
    with pytest.raises(UnknownVariableError, match=r"no variable 'z'.*'x'") as caught:
        _ = state["z"]
    assert isinstance(caught.value, KeyError)
    with pytest.raises(UnknownVariableError):
        state.get_meta_info("z")


def _one_gen() -> ProgramState:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x")

    return program.run(backend=ScriptedBackend())


def test_t61_reading_a_var_scope_inside_its_block_raises_at_once() -> None:
    @function
    def program(s: ProgramState) -> None:
        with s.var_scope("v"):
            s += "a" + gen("x")
            with pytest.raises(ProgramError, match="inside its own var_scope"):
                _ = s["v"]
            (fork,) = s.fork(1)
            with pytest.raises(ProgramError, match="inside its own var_scope"):
                _ = fork["v"]
            assert s["x"] == "!"
        assert s["v"] == "a!"
        assert fork["v"] == "a!"

    program.run(backend=ScriptedBackend("!"))


def test_t61_get_var_has_a_timeout() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x")
        with pytest.raises(TimeoutError, match=r"'x' is not set after 0.01 s"):
            s.get_var("x", timeout=0.01)

    state = program.run(backend=ScriptedBackend("!", latency_s=0.2))
    assert state.get_var("x", timeout=20) == "!"


def test_var_scope_records_text_and_may_be_used_again() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a"
        for index in range(3):
            with s.var_scope("v"):
                s += str(index) + gen()
            assert s["v"] == f"{index}!"

    assert program.run(backend=ScriptedBackend("!")).text() == "a0!1!2!"


def test_a_loop_may_branch_on_what_it_reads() -> None:
    @function
    def program(s: ProgramState) -> int:
        for turn in range(10):
            s += f" {turn}:" + gen("thought")
            if s["thought"] == "stop":
                return turn
        return -1

    assert program.run(backend=ScriptedBackend(["go", "go", "stop"])).ret_value == 2


def test_str_and_repr_show_the_text_and_do_not_wait() -> None:
    state = _one_gen()
    assert str(state) == f"{state}" == "aok"
    assert repr(state) == "<ProgramState settled, variables: 'x'>"

    @function
    def program(s: ProgramState) -> str:
        s += "a" + gen("x")
        return repr(s)

    slow = program.run(backend=ScriptedBackend(latency_s=30))
    assert slow.ret_value == "<ProgramState running, variables: 'x'>"
    slow.cancel()
    slow.error()
    assert repr(slow) == "<ProgramState failed, variables: 'x'>"


def test_the_state_may_be_read_and_appended_to_from_many_threads() -> None:
    state = _one_gen()
    texts: list[str] = []

    def work() -> None:
        for _ in range(20):
            state.__iadd__("b" + gen())
        texts.append(state.text())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert state.text() == "aok" + "bok" * 160
    assert all(text == "aok" + "bok" * 160 or len(text) < 483 for text in texts)


def test_a_state_goes_on_after_its_program() -> None:
    state = _one_gen()
    state += "b" + gen("y")
    assert state["y"] == "ok"
    assert state.text() == "aokbok"


def test_cancelling_fails_what_is_pending_and_what_comes() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x")

    backend = ScriptedBackend(latency_s=30)
    state = program.run(backend=backend)
    state.cancel()
    with pytest.raises(RequestCancelledError, match="cancelled") as caught:
        state.sync()
    assert str(caught.value)
    state += gen("y")
    with pytest.raises(Exception, match=r"'y'.*cancelled"):
        _ = state["y"]
    assert backend._in_flight == 0


class BoomError(Exception):
    pass


def fails_after(marker: str) -> ScriptedBackend:
    def answer(call: ScriptedCall) -> str | BaseException:
        return BoomError("boom") if call.text.endswith(marker) else "ok"

    return ScriptedBackend(answer)


@function
def asks_twice(s: ProgramState) -> int:
    s += "a" + gen("first")
    line = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    s += "BAD" + gen("second")
    s += "c" + gen("third")
    return line


def test_t60_an_error_is_raised_where_the_variable_is_read() -> None:
    state = asks_twice.run(backend=fails_after("BAD"))
    assert state["first"] == "ok"
    with pytest.raises(GenerationError, match=r"gen 'second'.*failed: BoomError: boom") as caught:
        _ = state["second"]
    assert isinstance(caught.value, EspalierError)
    assert isinstance(caught.value.__cause__, BoomError)
    assert caught.value.variable == "second"
    assert caught.value.location == f"{__file__}:{state.ret_value}"
    assert caught.value.location in str(caught.value)


def test_t60_text_sync_messages_and_meta_info_raise_the_same() -> None:
    state = asks_twice.run(backend=fails_after("BAD"))
    for read in (state.text, state.sync, state.messages, lambda: state.get_meta_info("second")):
        with pytest.raises(GenerationError, match="gen 'second'") as caught:
            read()
        assert isinstance(caught.value.__cause__, BoomError)
    assert isinstance(state.error(), GenerationError)


def test_t60_each_reader_gets_an_exception_of_its_own() -> None:
    state = asks_twice.run(backend=fails_after("BAD"))
    assert state.error() is not state.error()


def test_t60_later_gens_are_cancelled_and_say_why() -> None:
    backend = fails_after("BAD")
    state = asks_twice.run(backend=backend)
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


def test_t60_an_error_that_nobody_reads_is_no_warning_and_error_returns_it(
    recwarn: pytest.WarningsRecorder,
) -> None:
    state = asks_twice.run(backend=fails_after("BAD"))
    assert isinstance(state.error(), GenerationError)
    assert not list(recwarn)
    assert asks_twice.run(backend=ScriptedBackend()).error() is None


def test_t61_blocking_reads_in_an_async_program_raise_at_once() -> None:
    @function
    async def program(s: ProgramState) -> None:
        s += "a" + gen("x")
        with pytest.raises(ProgramError, match=r"await s.aget"):
            _ = s["x"]
        with pytest.raises(ProgramError, match=r"await s.atext"):
            s.text()
        forks = s.fork(2)
        with pytest.raises(ProgramError, match=r"await group.ajoin"):
            forks.join()
        with pytest.raises(ProgramError, match=r"await f.arun"):
            program.run()
        with pytest.raises(ProgramError, match="arun_batch"):
            program.run_batch([{}])
        with pytest.raises(ProgramError, match="text_async_iter"):
            list(s.text_iter())
        await s.aget("x")
        assert s["x"] == "ok"

    backend = ScriptedBackend(latency_s=0.01)
    program.run(backend=backend)
    asyncio.run(_awaited(program, backend))


async def _awaited(program: Any, backend: ScriptedBackend) -> None:
    await program.arun(backend=backend)


def test_t61_a_script_that_reads_the_state_it_answers_for_raises_at_once() -> None:
    states: list[ProgramState] = []

    def answer(call: ScriptedCall) -> str:
        return str(states[0]["x"])

    @function
    def program(s: ProgramState) -> None:
        states.append(s)
        s += "a" + gen("x")

    with pytest.raises(GenerationError, match="stops the event loop"):
        program.run(backend=ScriptedBackend(answer)).sync()


def test_t61_a_fork_made_in_a_scope_reads_its_variable_after_the_block() -> None:
    @function
    def program(s: ProgramState) -> Any:
        with s.var_scope("part"):
            s += "a" + gen("x")
            fork = s.fork(1)[0]
        return fork["part"]  # the call may still be at work: the read waits for it

    backend = ScriptedBackend("!", latency_s=0.02)
    assert program.run(backend=backend).ret_value == "a!"
