"""`espalier generate`."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend
from espalier.cli.engine_choice import LazyEngine

from .conftest import Command


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ScriptedBackend:
    def answer(call: Any) -> Any:
        count = call.sampling.n
        return " one two three" if count == 1 else [f" sample{index}" for index in range(count)]

    backend = ScriptedBackend(answer)
    monkeypatch.setattr(
        LazyEngine, "engine", lambda self: SimpleNamespace(endpoint=backend, shutdown=None)
    )
    return backend


def test_answer_goes_to_stdout_and_the_report_to_stderr(
    command: Command, backend: ScriptedBackend
) -> None:
    ended = command("generate", "Count:")
    assert (ended.status, ended.out) == (0, " one two three\n")
    assert ended.err.startswith("espalier: 1 program, 1 call in ")
    assert backend.calls[0].text == "Count:"


def test_prompt_is_read_from_stdin(
    command: Command, backend: ScriptedBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("line 1\nline 2\n"))
    assert command("generate", "-").status == 0
    assert backend.calls[0].text == "line 1\nline 2\n"


def test_options_reach_the_call(command: Command, backend: ScriptedBackend) -> None:
    ended = command(
        "generate", "x", "--max-new-tokens", "2", "--min-new-tokens", "1", "--temperature", "0",
        "--top-p", "0.5", "--top-k", "7", "--min-p", "0.1", "--frequency-penalty", "0.2",
        "--presence-penalty", "0.3", "--repetition-penalty", "1.1", "--stop", "S",
        "--stop-token-id", "5", "--ignore-eos", "--stop-regex", "a+", "--stop-regex", "[bc]d",
    )  # fmt: skip
    assert ended.out == " one two\n", ended.err
    sampling = backend.calls[0].sampling
    assert sampling is not None
    assert (sampling.max_new_tokens, sampling.min_new_tokens) == (2, 1)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (
        0,
        0.5,
        7,
        0.1,
    )
    assert (sampling.frequency_penalty, sampling.presence_penalty) == (0.2, 0.3)
    assert (sampling.repetition_penalty, sampling.ignore_eos) == (1.1, True)
    assert (sampling.stop, sampling.stop_token_ids) == (("S",), (5,))
    assert sampling.stop_regex == ("a+", "[bc]d")


def test_several_samples_are_numbered(command: Command, backend: ScriptedBackend) -> None:
    ended = command("generate", "x", "-n", "2", "--seed", "1")
    assert ended.out == "[1]  sample0\n[2]  sample1\n"
    assert len(backend.calls) == 1


def test_chat_wraps_the_prompt_in_the_template(command: Command, backend: ScriptedBackend) -> None:
    assert command("generate", "--chat", "Hello").status == 0
    assert backend.calls[0].text == "USER:Hello\nASSISTANT:"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["x", "--top-p", "2"], 1, "top_p is 2"),
        ([""], 1, "prompt is empty"),
        (["x", "--threads", "0"], 2, "--threads"),
        (["x", "--threads", "1025"], 2, "--threads"),
        ([], 2, "PROMPT"),
    ],
)
@pytest.mark.usefixtures("backend")
def test_wrong_input_is_told(
    command: Command, arguments: list[str], status: int, message: str
) -> None:
    ended = command("generate", *arguments)
    assert ended.status == status
    assert message in ended.err
    assert "Traceback" not in ended.err
