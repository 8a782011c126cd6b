"""An error that nobody reads is logged once nothing is left that could tell of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import BatchError, GenerationError
from espalier.lang import loop, unread
from espalier.lang.api import gen
from espalier.lang.function import function
from espalier.lang.state import ProgramState


def answer(call: ScriptedCall) -> str | BaseException:
    return ValueError("boom") if call.text.endswith("BAD") else "ok"


@function
def program(s: ProgramState, word: str = "BAD") -> None:
    s += word + gen("x")
    s += "then" + gen("y")


@pytest.fixture(autouse=True)
def counts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors that earlier tests left are logged before the test begins, and not counted in it."""
    for _ in range(3):  # what the loop still holds is let go when it turns
        loop.run_blocking(asyncio.sleep(0))
        gc.collect()
    monkeypatch.setattr(unread, "_numbers", itertools.count(1))


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    gc.collect()
    return [record.message for record in caplog.records if record.levelno == logging.ERROR]


def settle(state: ProgramState) -> None:
    deadline = time.monotonic() + 5
    while not state.stream.is_settled() and time.monotonic() < deadline:
        time.sleep(0.002)


@pytest.mark.parametrize("stream", [False, True])
def test_the_error_of_a_state_that_was_dropped_is_logged_once(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder, stream: bool
) -> None:
    state = program.run(backend=ScriptedBackend(answer), stream=stream)
    state.stream.program.body_ended.wait()
    settle(state)
    assert logged(caplog) == []
    del state
    (line,) = logged(caplog)
    assert "never read: gen 'x' at" in line
    assert f"{__file__}:" in line
    assert line.endswith("ValueError: boom")
    assert not list(recwarn)


@pytest.mark.parametrize(
    "read",
    [
        lambda state: state["x"],
        lambda state: state["y"],
        lambda state: state.text(),
        lambda state: state.error(),
        lambda state: list(state.text_iter()),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_that_was_read_is_not_logged(
    caplog: pytest.LogCaptureFixture, read: object, stream: bool
) -> None:
    assert callable(read)
    state = program.run(backend=ScriptedBackend(answer), stream=stream)
    with contextlib.suppress(GenerationError):
        read(state)
    del state
    assert logged(caplog) == []


def test_the_error_of_a_fork_that_is_never_joined_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @function
    def forking(s: ProgramState) -> None:
        s += "a"
        forks = s.fork(2)
        forks += ["BAD", "fine"]
        forks += gen("z")
        settle(forks[0])

    assert forking.run(backend=ScriptedBackend(answer)).text() == "a"
    (line,) = logged(caplog)
    assert "gen 'z'" in line


def test_the_errors_of_forks_that_are_joined_are_not(caplog: pytest.LogCaptureFixture) -> None:
    @function
    def forking(s: ProgramState) -> None:
        forks = s.fork(3)
        forks += "BAD" + gen("z")
        with pytest.raises(GenerationError):
            forks.join()

    forking.run(backend=ScriptedBackend(answer)).sync()
    assert logged(caplog) == []


def test_an_error_of_the_body_is_told_by_run_and_logged_where_it_streams(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @function
    def failing(s: ProgramState) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        failing.run(backend=ScriptedBackend())
    assert logged(caplog) == []
    state = failing.run(backend=ScriptedBackend(), stream=True)
    state.stream.program.body_ended.wait()
    del state
    deadline = time.monotonic() + 5
    while not logged(caplog) and time.monotonic() < deadline:
        time.sleep(0.002)  # the thread of the body lets go of the state
    assert logged(caplog) == ["an error of a program was never read: KeyError: 'mine'"]


def test_cancellations_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    state = program.run("fine", backend=ScriptedBackend(latency_s=60))
    state.cancel()
    settle(state)
    del state
    with program.run("fine", backend=ScriptedBackend(latency_s=60)):
        pass
    assert logged(caplog) == []


def test_a_batch_raises_or_returns_its_errors(caplog: pytest.LogCaptureFixture) -> None:
    items = [{"word": word} for word in ("BAD", "fine", "BAD")]
    with pytest.raises(BatchError, match=r"item 0.*2 of 3 items failed"):
        program.run_batch(items, backend=ScriptedBackend(answer))
    assert logged(caplog) == []
    states = program.run_batch(items, backend=ScriptedBackend(answer), on_error="return")
    assert states[0].error() is not None
    del states
    assert len(logged(caplog)) == 1  # of item 2, which nobody looked at


def test_no_more_than_20_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    items = [{"word": "BAD"}] * 50
    program.run_batch(items, backend=ScriptedBackend(answer), on_error="return")
    lines = logged(caplog)
    assert len(lines) == unread.MAX_LOGGED
    assert "no more of these are shown" in lines[-1]


_SCRIPT = """
from espalier import ScriptedBackend, function, gen

@function
def program(s):
    s += "a" + gen("x")

state = program.run(backend=ScriptedBackend(ValueError("boom")))
while not state.stream.is_settled():
    pass
"""


def test_an_unread_error_is_told_when_python_exits() -> None:
    source = str(Path(__file__).parents[2] / "src")
    paths = os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "never read: gen 'x' at <string>:6 failed: ValueError: boom" in done.stderr


def test_an_error_that_a_body_passed_on_is_read_where_its_state_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @function
    def returns(s: ProgramState) -> str:
        s += "BAD" + gen("x")
        return str(s["x"])

    states = returns.run_batch([{}, {}], backend=ScriptedBackend(answer), on_error="return")
    assert all(isinstance(state.error(), GenerationError) for state in states)
    del states
    assert logged(caplog) == []
    returns.run_batch([{}], backend=ScriptedBackend(answer), on_error="return")
    assert len(logged(caplog)) == 1
