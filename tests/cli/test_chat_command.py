"""`espalier chat`: commands, turns that fail or are stopped, and what stays of them."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend
from espalier.cli.chat_command import turn_line
from espalier.cli.chat_session import ChatSession
from espalier.cli.engine_choice import LazyEngine
from espalier.errors import GenerationError
from espalier.lang.config import set_default_backend

from .conftest import Command, Ended


def answer(call: Any) -> Any:
    asked = call.text.rsplit("USER:", 1)[-1].split("\n")[0]
    if asked == "fail":
        return RuntimeError("down")
    return f"about {asked}"


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedBackend]:
    backend = ScriptedBackend(answer)
    monkeypatch.setattr(
        LazyEngine, "engine", lambda self: SimpleNamespace(endpoint=backend, shutdown=None)
    )
    set_default_backend(backend)
    yield backend
    set_default_backend(None)


class Talk:
    """Sends lines as standard input."""

    def __init__(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        self._command, self._monkeypatch = command, monkeypatch

    def __call__(self, *lines: str, options: tuple[str, ...] = ()) -> Ended:
        self._monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
        return self._command("chat", *options)


@pytest.fixture
def talk(command: Command, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch) -> Talk:
    return Talk(command, monkeypatch)


def test_turns_build_on_each_other(talk: Talk, backend: ScriptedBackend) -> None:
    ended = talk("cats", "", "dogs", options=("--system", "Be kind."))
    assert (ended.status, ended.out) == (0, "about cats\nabout dogs\n")
    assert backend.calls[-1].text == (
        "SYSTEM:Be kind.\nUSER:cats\nASSISTANT:about cats\nUSER:dogs\nASSISTANT:"
    )
    lines = ended.err.splitlines()
    assert lines[0].startswith("[0 of 4 prompt tokens cached, 2 generated, ")
    assert lines[2].startswith("espalier: 1 program, 2 calls in ")


def test_exit_ends_and_reset_forgets(talk: Talk, backend: ScriptedBackend) -> None:
    ended = talk("cats", "/reset", "dogs", "/exit", "birds")
    assert ended.out == "about cats\nabout dogs\n"
    assert backend.calls[-1].text == "USER:dogs\nASSISTANT:"


def test_system_starts_anew_and_stays_after_reset(talk: Talk, backend: ScriptedBackend) -> None:
    talk("cats", "/system Be brief.", "dogs", "/reset", "birds")
    assert [call.text for call in backend.calls] == [
        "USER:cats\nASSISTANT:",
        "SYSTEM:Be brief.\nUSER:dogs\nASSISTANT:",
        "SYSTEM:Be brief.\nUSER:birds\nASSISTANT:",
    ]


@pytest.mark.parametrize("line", ["/nonsense", "/system", "/exit now", "/reset all"])
def test_wrong_command_is_told_and_not_sent(
    talk: Talk, backend: ScriptedBackend, line: str
) -> None:
    ended = talk(line, "/help")
    assert ended.out == ""
    assert f"espalier: {line!r} is no command" in ended.err
    assert "/reset " in ended.err
    assert not backend.calls


def test_turn_that_fails_is_dropped_and_the_chat_goes_on(
    talk: Talk, backend: ScriptedBackend
) -> None:
    ended = talk("cats", "fail", "dogs")
    assert ended.status == 0
    assert ended.out == "about cats\n\nabout dogs\n"
    assert "down" in ended.err
    assert backend.calls[-1].text == ("USER:cats\nASSISTANT:about cats\nUSER:dogs\nASSISTANT:")


def test_stopped_answer_keeps_what_was_seen(backend: ScriptedBackend) -> None:
    backend = ScriptedBackend("one two three", latency_s=0.3)
    set_default_backend(backend)
    session = ChatSession({})
    with closing(session.ask("cats")) as pieces:
        seen = next(pieces)
    assert "one two three".startswith(seen)
    assert session.last_meta_info() == {}
    assert "".join(session.ask("dogs")) == "one two three"
    assert backend.calls[-1].text == (f"USER:cats\nASSISTANT:{seen}\nUSER:dogs\nASSISTANT:")
    assert session.last_meta_info()["completion_tokens"] == 3


@pytest.mark.usefixtures("backend")
def test_failing_turn_leaves_the_session_as_it_was() -> None:
    session = ChatSession({})
    assert "".join(session.ask("cats")) == "about cats"
    with pytest.raises(GenerationError, match="down"):
        "".join(session.ask("fail"))
    assert "".join(session.ask("dogs")) == "about dogs"


def test_turn_line_tells_what_was_cached() -> None:
    meta = {"prompt_tokens": 1200, "cached_tokens": 1000, "completion_tokens": 50}
    assert turn_line(meta, 0.5) == (
        "[1,000 of 1,200 prompt tokens cached, 50 generated, 100 tokens/s]"
    )
