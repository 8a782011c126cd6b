from __future__ import annotations

import time

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import (
    GenerationError,
    ProgramError,
    RoleError,
    UnsupportedError,
    UserInputError,
)
from espalier.lang.api import assistant_begin, assistant_end, gen, user
from espalier.lang.function import SglFunction, function
from espalier.lang.state import ProgramState


def echo(call: ScriptedCall) -> str:
    return f"<{call.text[-2:]}>"


def test_fork_and_join_gather_variables_in_order() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        forks = s.fork(3)
        forks += lambda index: f" {index}" + gen("x")
        forks.join()
        s += "end"

    state = program.run(backend=ScriptedBackend(echo, latency_s=(0, 0.01)))
    assert state["x"] == ["< 0>", "< 1>", "< 2>"]
    assert state.text() == "pend"
    assert [meta["prompt_tokens"] for meta in state.get_meta_info("x")] == [2, 2, 2]


def test_t70_fork_is_not_a_barrier_and_keeps_the_order_of_the_text() -> None:
    @function
    def program(s: ProgramState) -> float:
        s += "p" + gen("slow")
        start = time.monotonic()
        forks = s.fork(2)
        forks += "c" + gen("x")
        s += "after"
        took = time.monotonic() - start
        forks.join()
        assert forks[0].text() == forks[1].text() == "p!c!"
        return took

    state = program.run(backend=ScriptedBackend("!", latency_s=0.3))
    assert state.ret_value < 0.25
    assert state.text() == "p!after"
    assert state["x"] == ["!", "!"]


def test_t71_fork_before_any_text_and_of_sizes_0_and_1() -> None:
    @function
    def program(s: ProgramState) -> None:
        empty = s.fork(0)
        assert len(empty) == 0
        empty += "x"
        empty.join()
        one = s.fork()
        one += "a" + gen("x")
        one.join()
        many = s.fork(2)
        many += "b" + gen("y")
        many.join()

    state = program.run(backend=ScriptedBackend("!"))
    assert state["x"] == ["!"]
    assert state["y"] == ["!", "!"]


def tree(depth: int, width: int) -> SglFunction:
    @function
    def program(s: ProgramState) -> None:
        s += "."
        level = [s]
        groups = []
        for number in range(depth):
            following = []
            for state in level:
                group = state.fork(width)
                group += lambda index, number=number: f"{number}{index}" + gen("x")
                groups.append(group)
                following += list(group)
            level = following
        for group in reversed(groups):
            group.join()

    return program


def test_t71_forks_4_deep_have_16_leaves() -> None:
    state = tree(4, 2).run(backend=ScriptedBackend(echo))
    value = state["x"]
    assert value == ["<00>", "<01>"]


def test_t71_fork_inside_an_open_role() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += user("q") + assistant_begin() + "a"
        forks = s.fork(2)
        for index, fork in enumerate(forks):
            fork.__iadd__(f"{index}" + gen("x") + assistant_end())
            assert fork.messages()[-1] == {"role": "assistant", "content": f"a{index}!"}
        s += assistant_end()

    assert program.run(backend=ScriptedBackend("!")).messages()[-1]["content"] == "a"


def test_t72_a_fork_without_the_variable_has_none_in_its_place() -> None:
    @function
    def program(s: ProgramState) -> None:
        s["old"] = 0
        s += "p"
        forks = s.fork(3)
        forks[0] += gen("x")
        forks[2] += gen("x")
        forks[1]["y"] = 5
        forks[1]["old"] = 1
        forks.join()
        assert forks[1]["old"] == 1

    state = program.run(backend=ScriptedBackend("!"))
    assert state["x"] == ["!", None, "!"]
    assert state["y"] == [None, 5, None]
    assert state["old"] == 0


def test_t72_unknown_modes_and_policies_raise_and_join_nothing() -> None:
    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(2)
        for arguments in ({"mode": "zip"}, {"on_error": "ignore"}):
            with pytest.raises(ValueError, match="allowed"):
                forks.join(**arguments)
        forks.join()

    program.run(backend=ScriptedBackend())


def bad_in(marker: str, latency_s: float = 0.0) -> ScriptedBackend:
    def answer(call: ScriptedCall) -> str | BaseException:
        return ValueError("boom") if marker in call.text else "ok"

    return ScriptedBackend(answer, latency_s=latency_s)


def test_t73_a_failing_fork_raises_at_join_after_its_siblings_have_ended() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        forks = s.fork(3)
        forks += ["a", "BAD", "c"]
        forks += gen("x")
        with pytest.raises(GenerationError, match=r"gen 'x'.*boom"):
            forks.join()
        assert [forks[0]["x"], forks[2]["x"]] == ["ok", "ok"]
        with pytest.raises(GenerationError, match="boom"):
            _ = forks[1]["x"]
        assert "x" not in s
        s += gen("mine")

    assert program.run(backend=bad_in("BAD", 0.01))["mine"] == "ok"


def test_t73_join_can_cancel_the_siblings() -> None:
    class Slow(ScriptedBackend):
        def _draw_latency(self) -> float:
            return 0.0 if "BAD" in self.calls[-1].text else 30.0

    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(3)
        forks += ["a", "BAD", "c"]
        forks += gen("x")
        with pytest.raises(GenerationError, match="boom"):
            forks.join(on_error="cancel")
        with pytest.raises(GenerationError, match="fork 1 of its group failed"):
            _ = forks[0]["x"]

    program.run(backend=Slow(lambda call: ValueError("boom") if "BAD" in call.text else "ok"))


def test_t74_the_prefix_of_a_fork_is_computed_once_before_its_branches() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a long prefix"
        forks = s.fork(4)
        forks += lambda index: f" {index}" + gen("x")
        forks.join()

    backend = ScriptedBackend("!", latency_s=(0, 0.01))
    program.run(backend=backend)
    assert [call.kind for call in backend.calls] == ["prefill"] + ["generate"] * 4
    assert backend.calls[0].text == "a long prefix"


def test_t74_no_prefix_is_sent_where_it_is_cached_or_nobody_calls() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p" + gen("x")
        s.fork(2).__iadd__("c" + gen("y")).join()
        s += "more"
        s.fork(2).__iadd__("no call").join()
        s.fork(1).__iadd__("c" + gen("y")).join()

    backend = ScriptedBackend("!")
    program.run(backend=backend)
    assert [call.kind for call in backend.calls] == ["generate"] * 4


def test_t74_nested_prefixes_are_computed_from_the_root_down() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        for fork in (forks := s.fork(2)):
            fork.__iadd__("q").fork(2).__iadd__("r" + gen("x")).join()
        forks.join()

    backend = ScriptedBackend("!")
    program.run(backend=backend)
    assert [call.text for call in backend.calls if call.kind == "prefill"] == ["p", "pq", "pq"]


def test_t75_forks_inherit_variables_meta_info_and_defaults() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p" + gen("x")
        (fork,) = s.fork(1)
        assert fork["x"] == "!"
        assert fork.get_meta_info("x") == s.get_meta_info("x")
        fork += gen("y")

    backend = ScriptedBackend("!")
    program.run(backend=backend, temperature=0.25)
    assert all(call.sampling and call.sampling.temperature == 0.25 for call in backend.calls)


def test_t76_groups_take_text_lists_functions_and_expressions() -> None:
    @function
    def program(s: ProgramState) -> list[str]:
        forks = s.fork(2)
        forks += "a"
        forks += ["0", "1"]
        forks += lambda index: "xy"[index]
        forks += gen("g")
        forks[0] += "tail"
        with pytest.raises(UserInputError, match="list of 3"):
            forks += ["a", "b", "c"]
        with pytest.raises(ProgramError, match="cannot be replaced"):
            forks[0] = forks[1]
        assert len(forks) == 2
        return [fork.text() for fork in forks]

    state = program.run(backend=ScriptedBackend("!"))
    assert state.ret_value == ["a0x!tail", "a1y!"]


def test_t77_appending_after_join_raises() -> None:
    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += "a"
        forks.join()
        for wrong in (
            lambda: forks[0].__iadd__("b"),
            lambda: forks.__iadd__("b"),
            lambda: forks[0].fork(2),
            lambda: forks[0].user("b"),
            forks.join,
        ):
            with pytest.raises(ProgramError, match="has been joined"):
                wrong()
        assert forks[0].text() == "a"

    program.run(backend=ScriptedBackend())


@pytest.mark.parametrize("mode", ["concate_and_append", "concat_text"])
def test_t78_the_text_of_forks_is_appended_in_order(mode: str) -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        forks = s.fork(3)
        forks += lambda index: f" {index}" + gen("x")
        s += "|"
        forks.join(mode)
        s += "." + gen("y")

    backend = ScriptedBackend(echo, latency_s=(0, 0.01))
    state = program.run(backend=backend)
    assert state.text() == "p| 0< 0> 1< 1> 2< 2>.<>.>"
    assert ("x" in state) == (mode == "concat_text")
    kept = [type(segment).__name__ for segment in backend.calls[-1].prompt]
    assert kept.count("TokenSegment") == 3


def test_t78_messages_of_forks_come_along_and_open_roles_must_agree() -> None:
    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(2)
        forks += lambda index: user(f"{index}")
        forks.join("concat_text")
        forks = s.fork(2)
        forks += assistant_begin()
        with pytest.raises(RoleError, match="assistant open"):
            forks.join("concat_text")

    state = program.run(backend=ScriptedBackend())
    assert [message["content"] for message in state.messages()] == ["0", "1"]


def test_copy_is_a_fork_of_one_that_is_joined_at_the_end() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        with s.copy() as twin:
            twin += "q" + gen("x")  # noqa: PLW2901 - as programs are written
        with pytest.raises(KeyError, match="mine"), s.copy() as other:  # noqa: PT012
            other += gen("y")  # noqa: PLW2901
            raise KeyError("mine")

    state = program.run(backend=ScriptedBackend("!", latency_s=0.01))
    assert state["x"] == ["!"]
    assert "y" not in state
    assert state.text() == "p"


@pytest.mark.parametrize("size", [-1, 1.5, True, 10**9])
def test_wrong_sizes_raise(size: int) -> None:
    @function
    def program(s: ProgramState) -> None:
        with pytest.raises(UserInputError, match="fork size"):
            s.fork(size)
        with pytest.raises(UnsupportedError, match="position_ids_offset"):
            s.fork(2, position_ids_offset=[1, 2])  # type: ignore[arg-type]

    program.run(backend=ScriptedBackend())


def test_joining_inside_a_forks_var_scope_raises() -> None:
    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(1)
        with forks[0].var_scope("v"):
            with pytest.raises(ProgramError, match="var_scope block 'v'"):
                forks.join()
        forks.join()

    assert program.run(backend=ScriptedBackend())["v"] == [""]


def test_a_fork_of_64_forks_of_64_runs() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        outer = s.fork(64)
        inner = [fork.fork(64) for fork in outer]
        for group in inner:
            group += lambda index: f" {index}" + gen("x")  # noqa: PLW2901
        for group in inner:
            group.join()
        outer.join()

    backend = ScriptedBackend("!")
    state = program.run(backend=backend)
    assert state["x"] == [["!"] * 64] * 64
    assert sum(call.kind == "generate" for call in backend.calls) == 4096
    assert state.usage().calls == 4096


def test_a_chain_of_1000_forks_needs_no_recursion() -> None:
    @function
    def program(s: ProgramState) -> str:
        state, groups = s, []
        for _ in range(1000):
            groups.append(state.fork(1))
            state = groups[-1][0]
            state += "."
        state += gen("x")
        return state.text()

    assert program.run(backend=ScriptedBackend("!")).ret_value == "." * 1000 + "!"
