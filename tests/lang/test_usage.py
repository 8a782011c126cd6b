from __future__ import annotations

from espalier.backends.scripted import ScriptedBackend
from espalier.lang.api import gen, select
from espalier.lang.function import function
from espalier.lang.state import ProgramState
from espalier.lang.usage import record_usage
from espalier.types import Usage


@function
def program(s: ProgramState) -> None:
    s += "one two"
    forks = s.fork(2)
    forks += " three" + gen("x")
    forks.join()
    s += " four" + select("c", ["a", "b"])


def test_t62_usage_sums_over_the_state_and_its_forks() -> None:
    state = program.run(backend=ScriptedBackend({"three": "x y", "four": "a"}))
    usage = state.usage()
    # two branches of 3, a selection of 3; the scripted backend has no cache
    assert usage == Usage(
        calls=3, prompt_tokens=9, computed_tokens=9, generated_tokens=4, ttft_count=3
    )


def test_usage_of_a_failed_state_counts_what_was_done() -> None:
    @function
    def failing(s: ProgramState) -> None:
        s += "a" + gen("x") + "b" + gen("y")

    state = failing.run(backend=ScriptedBackend(["ok", ValueError("boom")]))
    assert state.usage().calls == 1


def test_record_usage_counts_every_program_of_the_process() -> None:
    backend = ScriptedBackend({"three": "x y", "four": "a"}, model_name="toy")
    with record_usage() as log, record_usage() as inner:
        program.run_batch([{}] * 5, backend=backend)
    program.run(backend=backend).sync()
    assert (log.programs, log.calls) == (5, 15)
    assert log.usage.prompt_tokens == 45
    assert log.models == ["toy"]
    assert log.wall_s > 0
    assert inner.usage == log.usage


def test_an_unused_log_is_empty() -> None:
    with record_usage() as log:
        pass
    assert (log.programs, log.calls, log.wall_s) == (0, 0, 0.0)
