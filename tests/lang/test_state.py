from __future__ import annotations

import threading
import time

import pytest

from espalier.backends.scripted import ScriptedBackend
from espalier.errors import ProgramError, RequestCancelledError, UnknownVariableError
from espalier.lang.api import gen
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
