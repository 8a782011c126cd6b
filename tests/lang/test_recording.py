"""What is recorded of a run, whatever becomes of it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.backends.toy import rows_of, toy_backend

from espalier.backends.base import GenerateCall, GenerateResult, OnDelta
from espalier.backends.scripted import ScriptedBackend
from espalier.errors import GenerationError, ProgramError, UserInputError
from espalier.lang.api import assistant, gen, select, separate_reasoning, user
from espalier.lang.function import function
from espalier.lang.recording import record_run
from espalier.lang.state import ProgramState
from espalier.report.coverage import CACHED, COMPUTED, CONSTANT, FORCED, Coverage
from espalier.report.record import (
    CANCELLED,
    CHOICE,
    DONE,
    FAILED,
    GENERATED,
    PROGRAM,
    SHARED_PREFIX,
    TEMPLATE,
    Budget,
    CallRecord,
    Piece,
    RunRecord,
    StateRecord,
)
from espalier.types import Usage


@function
def tips(s: ProgramState, topic: str) -> None:
    s += f"Tips about {topic}."
    forks = s.fork(2)
    forks += lambda i: f" Tip {i}:" + gen("tip")
    forks.join("concat_text")
    s += " Best:" + select("best", ["0", "1"])
    s["count"] = 2


def run_of(state: ProgramState) -> RunRecord:
    recorder = state.stream.program.recorder
    assert recorder is not None
    return recorder.record


def text_of(state: StateRecord) -> str:
    return "".join(piece.text for piece in state.pieces)


def origins(run: RunRecord, index: int = 0) -> list[tuple[str, str]]:
    """The text of a state as (origin, text), neighbours of one origin put together."""
    found: list[tuple[str, str]] = []
    for _, spans in Coverage(run).spans(run.states[index]):
        for span in spans:
            if found and found[-1][0] == span.origin:
                found[-1] = (span.origin, found[-1][1] + span.text)
            else:
                found.append((span.origin, span.text))
    return found


def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    state = tips.run("tea", backend=ScriptedBackend({"Tip": " drink", "Best": "1"}))
    state.sync()
    assert state.stream.program.recorder is None
    assert state.stream.record is None
    with pytest.raises(ProgramError, match="not recorded: run it with trace=True"):
        state.show()


def test_a_run_has_its_states_texts_calls_and_variables() -> None:
    backend = ScriptedBackend({"Tip": " drink", "Best": "1"}, latency_s=0.001)
    state = tips.run("tea", backend=backend, trace=True)
    assert state.show().runs == [run_of(state)]
    run = run_of(state)
    assert (run.title, run.model, run.error) == ("tips('tea')", "scripted", None)
    main, first, second = run.states
    assert text_of(main) == state.text()
    assert [piece.source for piece in main.pieces] == [
        *(PROGRAM, PROGRAM, GENERATED, PROGRAM, GENERATED),
        *(PROGRAM, CHOICE),
    ]
    assert [text_of(fork) for fork in (first, second)] == [" Tip 0: drink", " Tip 1: drink"]
    assert first.parent is second.parent is main
    assert first.inherited() == [(main, 1)]
    assert [call.kind for call in main.calls] == [SHARED_PREFIX, "select"]
    assert list(main.calls[1].scores) == [("0", -5.0), ("1", -0.1)]
    (call,) = first.calls
    assert (call.kind, call.variable, call.status, call.texts) == ("gen", "tip", DONE, [" drink"])
    assert call.location is not None
    assert call.location.startswith(__file__)
    assert call.usage == state.usage("best").__class__(
        calls=1, prompt_tokens=5, computed_tokens=5, generated_tokens=1, ttft_sum_s=0.001,
        ttft_count=1,
    )  # fmt: skip
    assert call.sent_at is not None
    assert call.ended_at is not None
    assert call.first_token_at is not None
    assert call.submitted_at <= call.sent_at <= call.first_token_at <= call.ended_at
    assert first.joined_at is not None
    assert [(v.name, v.how, v.value) for v in main.variables] == [
        ("tip", "join", "[' drink', ' drink']"),
        ("count", "set", "2"),
    ]


def test_roles_are_told_from_the_programs_own_text() -> None:
    @function
    def chat(s: ProgramState) -> None:
        s += user("Hi") + assistant(gen("a"))

    run = run_of(_synced(chat.run(backend=ScriptedBackend("Hello"), trace=True)))
    assert [(piece.source, piece.text) for piece in run.states[0].pieces] == [
        (TEMPLATE, "USER:"),
        (PROGRAM, "Hi"),
        (TEMPLATE, "\n"),
        (TEMPLATE, "ASSISTANT:"),
        (GENERATED, "Hello"),
        (TEMPLATE, "\n"),
    ]
    assert origins(run) == [
        (COMPUTED, "USER:Hi\nASSISTANT:"),
        (GENERATED, "Hello"),
        (CONSTANT, "\n"),
    ]


def _synced(state: ProgramState) -> ProgramState:
    state.error()
    return state


class Caching(ScriptedBackend):
    """Finds all of a prompt but its last four tokens in its cache."""

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        result = await super().generate(call, on_delta)
        usage = result.usage
        usage.computed_tokens = min(usage.prompt_tokens, 4)
        usage.cached_tokens = usage.prompt_tokens - usage.computed_tokens
        return result


def test_cached_text_of_a_backend_that_tells_counts_is_placed_by_proportion() -> None:
    @function
    def one(s: ProgramState) -> None:
        s += "0123456789ABCDEF" + gen("x")

    run = run_of(_synced(one.run(backend=Caching("y", tokens="byte"), trace=True)))
    assert origins(run) == [(CACHED, "0123456789AB"), (COMPUTED, "CDEF"), (GENERATED, "y")]
    assert Coverage(run).is_approximate


def test_origins_are_exact_where_the_backend_tells_offsets() -> None:
    @function
    def two(s: ProgramState) -> None:
        s += "abc d!" + gen("x", regex="abcab[ac]", max_tokens=8)
        s += " d" + gen("y", max_tokens=2, ignore_eos=True)

    backend = toy_backend()
    try:
        first = run_of(_synced(two.run(backend=backend, trace=True, temperature=0)))
        again = run_of(_synced(two.run(backend=backend, trace=True, temperature=0)))
    finally:
        backend.shutdown()
    before, forced = origins(first)[0], origins(first)[1]
    assert before == (COMPUTED, "abc d!")
    assert forced[0] == FORCED
    assert forced[1] == "abc"  # what follows may be cut into tokens in several ways
    x, y = first.states[0].calls
    assert x.usage is not None
    assert x.usage.forced_tokens == 1
    # The second run computes the token that is forced after its first prompt, and not the prompt.
    assert origins(again)[:2] == [(CACHED, "abc d!"), (FORCED, "abc")]
    assert not Coverage(again).is_approximate
    assert y.cached_length is not None
    assert y.cached_length >= len("abc d!")


def test_the_text_of_forks_is_cached_or_computed_once() -> None:
    @function
    def forks(s: ProgramState) -> None:
        s += "abcd abcd"
        group = s.fork(3)
        group += "!d" + gen("x", max_tokens=1, ignore_eos=True)
        group.join()

    backend = toy_backend()
    try:
        run = run_of(_synced(forks.run(backend=backend, trace=True)))
    finally:
        backend.shutdown()
    prefix = run.states[0].calls[0]
    assert (prefix.kind, prefix.status) == (SHARED_PREFIX, DONE)
    assert origins(run) == [(COMPUTED, "abcd abcd")]
    for index in (1, 2, 3):  # one that came later may find the "!" of the others
        own = [text for origin, text in origins(run, index) if origin in (CACHED, COMPUTED)]
        assert "".join(own) == "!d"
    usages = [state.calls[0].usage for state in run.states[1:]]
    num_computed = sum(usage.computed_tokens for usage in usages if usage is not None)
    assert num_computed == rows_of(backend)


def test_failed_and_cancelled_calls_say_why() -> None:
    @function
    def fails(s: ProgramState) -> None:
        s += "a" + gen("x") + "b" + gen("y") + gen("z")

    backend = ScriptedBackend(["fine", ValueError("boom")])
    run = run_of(_synced(fails.run(backend=backend, trace=True)))
    x, y, z = run.states[0].calls
    assert (x.status, x.error) == (DONE, None)
    assert (y.status, y.error) == (FAILED, "ValueError: boom")
    assert z.status == CANCELLED
    assert "boom" in str(z.error)
    assert text_of(run.states[0]) == "afineb"


def test_a_text_that_is_no_value_keeps_text_and_error() -> None:
    @function
    def fails(s: ProgramState) -> None:
        s += "a" + gen("x", json_schema={"type": "object"})

    run = run_of(_synced(fails.run(backend=ScriptedBackend("{oops"), trace=True)))
    (call,) = run.states[0].calls
    assert (call.status, call.texts) == (DONE, ["{oops"])
    assert "no whole value" in str(call.error)


def test_a_body_that_raises_is_recorded_with_its_error() -> None:
    @function
    def raises(s: ProgramState) -> None:
        s += "a" + gen("x")
        s.sync()
        raise KeyboardInterrupt

    with record_run() as view:
        with pytest.raises(KeyboardInterrupt):
            raises.run(backend=ScriptedBackend())
    (run,) = view.runs
    assert run.error == "KeyboardInterrupt"
    assert run.ended_at is not None
    assert text_of(run.states[0]) == "aok"


def test_recording_takes_every_program_in_order_and_those_inside() -> None:
    @function
    def inner(s: ProgramState, number: int) -> None:
        s += "n" + gen("x")

    @function
    def outer(s: ProgramState) -> None:
        inner(1).sync()
        inner.run_batch([{"number": 2}, {"number": 3}])

    backend = ScriptedBackend()
    with record_run() as view:
        outer.run(backend=backend)
    inner(4, backend=backend).sync()
    outer_run, *others = view.runs
    assert outer_run.title == "outer()"
    assert sorted(run.title for run in others) == ["inner(1)", "inner(number=2)", "inner(number=3)"]
    assert all(run.parent is outer_run for run in others)


def test_show_of_one_item_of_a_batch_draws_that_item() -> None:
    backend = ScriptedBackend({"Tip": " drink", "Best": "1"})
    with record_run() as view:
        states = tips.run_batch([{"topic": "tea"}, {"topic": "ink"}], backend=backend)
    assert len(view.runs) == 2
    assert [run.title for run in states[1].show().runs] == ["tips(topic='ink')"]
    alone = tips.run_batch([["tea"]] * 2, backend=backend, trace=True)
    assert all(len(state.show().runs) == 1 for state in alone)


def test_async_programs_are_recorded() -> None:
    @function
    async def story(s: ProgramState) -> Any:
        s += "a" + gen("x")
        await s.aget("x")
        return s.show()  # inside, it waits for nothing

    state = asyncio.run(story.arun(backend=ScriptedBackend("b"), trace=True))
    assert state.ret_value.runs == [run_of(state)]
    assert origins(run_of(state)) == [(COMPUTED, "a"), (GENERATED, "b")]


def test_streamed_programs_are_recorded() -> None:
    @function
    def story(s: ProgramState) -> None:
        s += "a" + gen("x", n=2)

    backend = ScriptedBackend(lambda call: ["one two", "three"], latency_s=0.001)
    state = story.run(backend=backend, stream=True, trace=True)
    assert "".join(state.text_iter()) == "aone two"
    run = run_of(_synced(state))
    assert text_of(run.states[0]) == "aone two"
    assert run.states[0].calls[0].texts == ["one two", "three"]


def test_more_runs_than_are_kept_are_counted() -> None:
    @function
    def one(s: ProgramState) -> None:
        s += "a" + gen("x")

    with record_run(max_runs=2) as view:
        one.run_batch([{}] * 5, backend=ScriptedBackend())
    assert len(view.runs) == 2
    assert view.recording.num_left_out == 3


def test_a_recording_that_is_full_says_so_and_the_program_goes_on() -> None:
    @function
    def long(s: ProgramState) -> None:
        for _ in range(5):
            s += "0123456789" + gen("x")
        forks = s.fork(3)
        forks += gen("y")
        forks.join("concat_text")

    with record_run() as view:
        budget = view.recording.budget
        budget.characters, budget.calls, budget.states = 25, 4, 2
        state = long.run(backend=ScriptedBackend("ok"))
        assert state.text() == "0123456789ok" * 5 + "ok" * 3
    (run,) = view.runs
    assert budget.is_cut
    assert text_of(run.states[0]) == "0123456789ok0123456789ok"
    assert run.states[0].is_cut
    assert len(run.states[0].calls) == 4
    assert len(run.states) == 2
    assert "missing" in view.html


@pytest.mark.parametrize("given", [1, "yes"])
def test_trace_is_true_or_false(given: Any) -> None:
    with pytest.raises(UserInputError, match="trace is"):
        tips.run("tea", backend=ScriptedBackend(), trace=given)


def test_a_program_may_have_a_parameter_named_trace() -> None:
    @function
    def own(s: ProgramState, trace: str) -> str:
        return trace

    assert own.run(trace="mine", backend=ScriptedBackend()).ret_value == "mine"


def test_a_failing_fork_is_drawn_with_the_others() -> None:
    @function
    def forks(s: ProgramState) -> None:
        s += "a"
        group = s.fork(2)
        group += lambda i: f"{i}" + gen("x")
        group.join()

    backend = ScriptedBackend({"0": "ok", "1": ValueError("boom")})
    with record_run() as view, pytest.raises(GenerationError):
        forks.run(backend=backend)
    (run,) = view.runs
    assert [state.calls[0].status for state in run.states[1:]] == [DONE, FAILED]
    assert run.error is not None
    assert run.error.startswith("GenerationError: gen 'x'")


def test_a_run_that_asks_for_it_is_recorded_also_where_another_recording_is_full() -> None:
    backend = ScriptedBackend({"Tip": " drink", "Best": "1"})
    with record_run(max_runs=1) as view:
        tips.run("ink", backend=backend).sync()
        state = tips.run("tea", backend=backend, trace=True)
    assert "tea" in state.show().html
    assert len(view.runs) == 1
    assert "1 more run ran and" in view.html


@pytest.mark.parametrize("given", [0, -1, "a", None, 1.5])
def test_a_recording_takes_one_run_or_more(given: Any) -> None:
    with pytest.raises(UserInputError, match="max_runs is"), record_run(max_runs=given):
        pass


def test_what_was_cached_is_what_the_first_of_several_calls_found() -> None:
    backend = toy_backend()

    @function
    def thinks(s: ProgramState) -> None:
        s += "abcabcabc"
        s += separate_reasoning(gen("x", stop="\n", max_tokens=20), model_type="qwen3")

    state = thinks.run(backend=backend, temperature=0, trace=True)
    state.sync()
    (call,) = run_of(state).states[0].calls
    assert call.usage is not None
    assert call.usage.calls == 2
    assert call.usage.cached_tokens > 0
    assert call.cached_length == 0
    assert origins(run_of(state))[0] == (COMPUTED, "abcabcabc")


def test_the_origins_of_a_long_run_take_time_in_proportion_to_it() -> None:
    run = RunRecord("p()", "m", 0.0, Budget())
    state = StateRecord("main", None, 0.0)
    run.states.append(state)
    for index in range(10_000):
        state.pieces.append(Piece(PROGRAM, "Q"))
        call = CallRecord("gen", f"x{index}", None, 0.0, sent_at=float(index), usage=Usage())
        call.prompt_length, call.cached_length = 2 * index + 1, 2 * index
        state.calls.append(call)
        state.pieces.append(Piece(GENERATED, "a", call))
    began_at = time.process_time()
    assert origins(run)[:3] == [(COMPUTED, "Q"), (GENERATED, "a"), (COMPUTED, "Q")]
    assert time.process_time() - began_at < 5  # 0.1 s; 30 s if each piece looked at all calls
