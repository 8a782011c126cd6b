from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from espalier.backends.base import Message
from espalier.backends.scripted import ScriptedBackend
from espalier.errors import ChatTemplateError, ProgramError, UserInputError
from espalier.lang.api import (
    assistant,
    assistant_begin,
    assistant_end,
    gen,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
)
from espalier.lang.function import function
from espalier.lang.ir import SglRoleBegin, SglRoleEnd
from espalier.lang.state import ProgramState
from espalier.types import TextSegment


@function
def with_expressions(s: ProgramState) -> None:
    s += system("be brief")
    s += user("q")
    s += assistant("<" + gen("a") + ">")


@function
def with_halves(s: ProgramState) -> None:
    s += system_begin()
    s += "be brief"
    s += system_end()
    s += user_begin() + "q" + user_end()
    s += assistant_begin()
    s += "<"
    s += gen("a")
    s += ">" + assistant_end()


@function
def with_blocks(s: ProgramState) -> None:
    with s.system():
        s += "be brief"
    with s.user():
        s += "q"
    with s.assistant():
        s += "<" + gen("a") + ">"


@function
def with_methods(s: ProgramState) -> None:
    s.system("be brief")
    s.user_begin()
    s += "q"
    s.user_end()
    s.assistant(["<", gen("a"), ">"])


@pytest.mark.parametrize("program", [with_expressions, with_halves, with_blocks, with_methods])
def test_all_forms_of_roles_give_the_same_text_and_messages(program: Any) -> None:
    state = program.run(backend=ScriptedBackend("yes"))
    assert state.text() == "SYSTEM:be brief\nUSER:q\nASSISTANT:<yes>\n"
    assert state.messages() == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "<yes>"},
    ]


def test_text_inside_roles_never_spells_control_tokens_and_the_templates_does() -> None:
    backend = ScriptedBackend()

    @function
    def program(s: ProgramState) -> None:
        s += "raw" + user("mine") + assistant(gen("a"))

    program.run(backend=backend).sync()
    assert [
        (segment.text, segment.allow_special)
        for segment in backend.calls[0].prompt
        if isinstance(segment, TextSegment)
    ] == [("raw", True), ("USER:", True), ("mine", False), ("\n", True), ("ASSISTANT:", True)]


def test_an_empty_block_is_an_empty_message() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += user()
        s += user("") + assistant()

    state = program.run(backend=ScriptedBackend())
    assert [message["content"] for message in state.messages()] == ["", "", ""]


def test_content_has_no_leading_whitespace() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += assistant(gen("a"))

    state = program.run(backend=ScriptedBackend(" \n yes "))
    assert state.messages()[0]["content"] == "yes "
    assert state["a"] == " \n yes "


def test_messages_leave_out_the_open_role() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += user("q") + assistant_begin() + "so far"

    assert len(program.run(backend=ScriptedBackend()).messages()) == 1


class Counting:
    """A template with a stop, a default system message and text that depends on the history."""

    stop = ("<end>",)

    def opening(self, role: str, history: Sequence[Message]) -> str:
        start = "[default]" if not history and role != "system" else ""
        return f"{start}{len(history)}{role}:"

    def closing(self, role: str, history: Sequence[Message]) -> str:
        return f"/{len(history)}"


def test_the_template_sees_the_history_and_its_stops_join_each_gen() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += user("q") + assistant(gen("a", stop="x"))

    backend = ScriptedBackend("yes<end>no", template=Counting())
    state = program.run(backend=backend)
    assert state.text() == "[default]0user:q/01assistant:yes/1"
    assert backend.calls[0].sampling is not None
    assert backend.calls[0].sampling.stop == ("x", "<end>")


def test_a_template_that_fails_is_raised_to_the_reader() -> None:
    class Failing(Counting):
        def opening(self, role: str, history: Sequence[Message]) -> str:
            raise ChatTemplateError("no such role")

    @function
    def program(s: ProgramState) -> None:
        s += user("q")

    state = program.run(backend=ScriptedBackend(template=Failing()))
    with pytest.raises(ChatTemplateError, match="no such role"):
        state.text()
    with pytest.raises(ChatTemplateError, match="no such role"):
        state.messages()


def test_var_scopes_end_in_order() -> None:
    @function
    def program(s: ProgramState) -> None:
        outer, inner = s.var_scope("outer"), s.var_scope("inner")
        outer.__enter__()
        inner.__enter__()
        with pytest.raises(ProgramError, match="innermost"):
            outer.__exit__(None, None, None)
        s += "x"
        inner.__exit__(None, None, None)
        s += "y"
        outer.__exit__(None, None, None)

    state = program.run(backend=ScriptedBackend())
    assert (state["inner"], state["outer"]) == ("x", "xy")


@pytest.mark.parametrize("role", ["", "tool", "🎉", "user\n<|im_end|>", 5, None])
def test_a_role_that_does_not_exist_is_refused_where_it_is_written(role: Any) -> None:
    for make in (SglRoleBegin, SglRoleEnd):
        with pytest.raises(UserInputError, match="system, user, assistant are allowed"):
            make(role)
