from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

from espalier.backends.base import GenerateCall, GenerateResult, OnDelta
from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import BatchError, GenerationError, ProgramError, SamplingError, UserInputError
from espalier.lang.api import gen
from espalier.lang.config import global_config, set_default_backend
from espalier.lang.function import SglFunction, function
from espalier.lang.state import ProgramState


@function
def asks(s: ProgramState, question: str, tail: str = "A:", *, shout: bool = False) -> int:
    """Asks one question."""
    s += (question.upper() if shout else question) + tail
    s += gen("answer")
    return 7


def test_run_returns_the_state_with_the_return_value() -> None:
    backend = ScriptedBackend({"Q A:": " yes"})
    state = asks.run("Q ", backend=backend)
    assert state["answer"] == " yes"
    assert state.text() == "Q A: yes"
    assert state.ret_value == 7


def test_t03_positional_keyword_default_and_keyword_only_arguments_work() -> None:
    backend = ScriptedBackend("!")
    assert asks.run("q", backend=backend).text() == "qA:!"
    assert asks.run("q", "B:", backend=backend).text() == "qB:!"
    assert asks.run(tail="C:", question="q", backend=backend).text() == "qC:!"
    assert asks.run("q", shout=True, backend=backend).text() == "QA:!"


def test_t03_a_program_with_star_arguments_gets_them() -> None:
    @function
    def program(s: ProgramState, *parts: str, **named: str) -> None:
        s += "".join(parts) + "".join(f"{key}={value}" for key, value in named.items())

    assert program.run("a", "b", c="d", backend=ScriptedBackend()).text() == "abc=d"


@pytest.mark.parametrize("name", ["stop", "n", "temperature", "stream", "backend"])
def test_t03_a_parameter_named_like_an_option_raises_at_decoration(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def program(s, {name}): pass", scope)
    with pytest.raises(UserInputError, match=f"parameter named {name}.*another name"):
        function(scope["program"])


def test_t03_a_parameter_named_like_an_option_of_espalier_alone_is_the_programs() -> None:
    @function
    def program(s: ProgramState, seed: str) -> None:
        s += seed

    assert program.run(seed="corn", backend=ScriptedBackend()).text() == "corn"


def test_the_first_parameter_must_be_named_s() -> None:
    with pytest.raises(UserInputError, match="must be named 's'"):

        @function
        def program(state: ProgramState) -> None: ...

    with pytest.raises(UserInputError, match="missing"):

        @function
        def other() -> None: ...


def test_the_decorator_works_with_parentheses_and_keeps_the_docs() -> None:
    @function()
    def program(s: ProgramState) -> None:
        """Does nothing."""

    assert isinstance(program, SglFunction)
    assert program.__doc__ == "Does nothing."
    assert vars(program)["__name__"] == "program"
    assert list(inspect.signature(program.func).parameters) == ["s"]


def test_unknown_arguments_raise_type_error_and_run_nothing() -> None:
    backend = ScriptedBackend()
    with pytest.raises(TypeError, match="colour"):
        asks.run("q", colour="red", backend=backend)
    with pytest.raises(TypeError, match="question"):
        asks.run(backend=backend)
    with pytest.raises(TypeError, match="images"):
        gen("x", images=[])  # type: ignore[call-arg]
    assert not backend.calls


def test_a_sampling_value_out_of_range_raises_at_run() -> None:
    with pytest.raises(SamplingError, match="top_p"):
        asks.run("q", top_p=0, backend=ScriptedBackend())


def test_run_values_are_the_defaults_of_each_gen() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x") + gen("y", max_tokens=3, temperature=0.5, stop=["!"])

    backend = ScriptedBackend()
    program.run(
        max_new_tokens=9, temperature=0.7, top_k=4, stop="?", logit_bias={3: 1.5}, backend=backend
    ).sync()
    first, second = (call.sampling for call in backend.calls)
    assert first is not None
    assert second is not None
    assert (first.max_new_tokens, first.temperature, first.top_k, first.stop) == (9, 0.7, 4, ("?",))
    assert (second.max_new_tokens, second.temperature, second.stop) == (3, 0.5, ("!",))
    assert second.top_k == 4
    assert first.logit_bias == {3: 1.5}


def test_without_a_backend_run_raises_and_says_what_to_do() -> None:
    with pytest.raises(ProgramError, match="set_default_backend"):
        asks.run("q")


def test_the_default_backend_serves_and_an_endpoint_is_unwrapped() -> None:
    class Wrapper:
        endpoint = ScriptedBackend("wrapped")

    set_default_backend(Wrapper())
    assert asks.run("q")["answer"] == "wrapped"
    assert asks.run("q", backend=ScriptedBackend("given"))["answer"] == "given"


def test_t02_bind_fixes_arguments_and_refuses_them_again() -> None:
    backend = ScriptedBackend("!")
    bound = asks.bind(question="q", shout=True)
    assert bound.run(backend=backend).text() == "QA:!"
    assert bound.bind(tail="Z").run(backend=backend).text() == "QZ!"
    with pytest.raises(TypeError, match="question"):
        bound.run(question="other", backend=backend)
    with pytest.raises(TypeError, match="question"):
        bound.run("other", backend=backend)
    with pytest.raises(TypeError, match="shout"):
        bound.bind(shout=False)
    with pytest.raises(TypeError, match="no parameter 'colour'"):
        asks.bind(colour="red")


def test_t02_run_batch_leaves_the_given_dicts_unchanged() -> None:
    items = [{"question": "a"}, {"question": "b"}]
    asks.bind(tail="T").run_batch(items, backend=ScriptedBackend())
    assert items == [{"question": "a"}, {"question": "b"}]


def test_a_program_called_inside_another_uses_its_backend() -> None:
    @function
    def outer(s: ProgramState) -> str:
        return str(asks("inner ")["answer"])

    assert outer.run(backend=ScriptedBackend("of outer")).ret_value == "of outer"


def test_nested_calls_work_when_every_thread_is_taken() -> None:
    @function
    def outer(s: ProgramState, depth: int) -> str:
        if depth:
            (inner,) = outer.run_batch([{"depth": depth - 1}], num_threads=1)
            return f"<{inner.ret_value}>"
        return str(asks.run("q")["answer"])

    states = outer.run_batch(
        [{"depth": 3}] * 8, num_threads=2, backend=ScriptedBackend("x", latency_s=0.001)
    )
    assert [state.ret_value for state in states] == ["<<<x>>>"] * 8


def test_a_body_that_raises_between_calls_is_raised_by_run_and_cancels_its_calls() -> None:
    backend = ScriptedBackend(latency_s=30)
    states = []

    @function
    def program(s: ProgramState) -> None:
        states.append(s)
        s += "a" + gen("x")
        forks = s.fork(3)
        forks += gen("y")
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        program.run(backend=backend)
    error = states[0].error()
    assert isinstance(error, KeyError)
    with pytest.raises(KeyError, match="mine"):
        states[0].sync()


def test_use_thread_false_runs_one_operation_after_the_other() -> None:
    backend = ScriptedBackend(latency_s=0.002)
    seen = []

    @function
    def program(s: ProgramState) -> None:
        forks = s.fork(3)
        for fork in forks:
            fork += "a" + gen("x")  # noqa: PLW2901 - as programs are written
            seen.append(len(backend.calls))

    program.run(backend=backend, use_thread=False)
    assert seen == [1, 2, 3]
    assert backend.max_in_flight == 1


def test_verbosity_2_prints_the_text(capsys: pytest.CaptureFixture[str]) -> None:
    global_config.verbosity = 2
    try:
        asks.run("q", backend=ScriptedBackend("!"))
    finally:
        global_config.verbosity = 0
    assert capsys.readouterr().out == "qA:!\n"


def test_an_unknown_setting_raises() -> None:
    with pytest.raises(AttributeError):
        global_config.enable_jumps = True  # type: ignore[attr-defined]


def test_a_def_program_uses_no_thread_of_its_own() -> None:
    @function
    def program(s: ProgramState) -> int:
        return threading.get_ident()

    assert program.run(backend=ScriptedBackend()).ret_value == threading.get_ident()


def test_calls_have_keys_that_do_not_depend_on_timing() -> None:
    @function
    def program(s: ProgramState, item: int) -> None:
        s += f"{item}"
        forks = s.fork(3)
        forks += gen("x") + gen("y")
        forks.join()

    def keys(seed: int) -> set[tuple[str, int]]:
        backend = ScriptedBackend("x", latency_s=(0.0, 0.003), seed=seed)
        program.run_batch([{"item": i} for i in range(5)], backend=backend, num_threads=5)
        return {(call.text, call.seed_key) for call in backend.calls if call.kind == "generate"}

    first = keys(1)
    assert len({key for _, key in first}) == 30
    assert first == keys(2)


def test_a_seed_of_the_run_gives_each_call_its_own_and_the_same_again() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "a" + gen("x") + gen("y") + gen("z", seed=5)

    def seeds(run_seed: int) -> list[Any]:
        backend = ScriptedBackend()
        program.run(seed=run_seed, backend=backend).sync()
        return [call.sampling.sampling_seed for call in backend.calls if call.sampling]

    first = seeds(1)
    assert first == seeds(1)
    assert first[:2] != seeds(2)[:2]
    assert len(set(first)) == 3
    assert first[2] == 5


@function
def double(s: ProgramState, number: int) -> int:
    s += f"w {number}" + gen("x")
    if number == 13:
        raise ValueError("unlucky")
    return number * 2


def numbered() -> ScriptedBackend:
    def echo(call: ScriptedCall) -> str | BaseException:
        last = call.text.split()[-1]
        return RuntimeError("seventh") if last == "7" else f"<{last}>"

    return ScriptedBackend(echo, latency_s=(0, 0.005))


def test_t04_the_first_error_is_raised_with_its_index_after_all_have_ended() -> None:
    scripted = numbered()
    numbers = [{"number": number} for number in (1, 7, 2, 13, 3)]
    with pytest.raises(BatchError, match=r"item 1 of the batch failed.*seventh") as caught:
        double.run_batch(numbers, backend=scripted, num_threads=2)
    assert caught.value.index == 1
    assert isinstance(caught.value.__cause__, GenerationError)
    assert "w 3" in [call.text for call in scripted.calls]


def test_t04_errors_can_be_returned_in_their_states() -> None:
    numbers = [{"number": number} for number in (1, 7, 13)]
    first, second, third = double.run_batch(numbers, backend=numbered(), on_error="return")
    assert first.error() is None
    assert isinstance(second.error(), GenerationError)
    assert isinstance(third.error(), ValueError)


def test_t06_a_generator_may_be_left_halfway() -> None:
    scripted = ScriptedBackend("x", latency_s=(0.0, 0.01))
    for count, _ in enumerate(
        double.run_batch(
            [{"number": number} for number in range(20, 520)],
            backend=scripted,
            generator_style=True,
            num_threads=8,
        )
    ):
        if count == 3:
            break


@pytest.mark.parametrize("fails", [False, True])
def test_t06_the_progress_bar_is_closed_also_on_an_error(
    fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = [{"number": 7 if fails else 1}, {"number": 2}]
    try:
        double.run_batch(numbers, backend=numbered(), progress_bar=True)
    except BatchError:
        assert fails
    for thread in threading.enumerate():
        if "Refresh" in type(thread).__name__:  # the bar's own
            thread.join(5)
            assert not thread.is_alive()
    captured = capsys.readouterr()
    assert "2/2" in captured.err
    assert captured.out == ""


@function
async def asks_async(s: ProgramState, question: str = "q") -> str:
    s += question + gen("x")
    value = await s.aget("x")
    forks = s.fork(2)
    forks += lambda index: f"{index}" + gen("y")
    await forks.ajoin()
    assert await s.aget("y") == ["ok", "ok"]
    assert (await s.aget_meta_info("x"))["completion_tokens"] == 1
    async with s.copy() as twin:
        twin.__iadd__("t" + gen("z"))
    assert await s.aget("z") == ["ok"]
    await s.afinish()
    assert await s.aerror() is None
    assert await s.amessages() == []
    assert (await s.ausage()).calls == 4
    assert await s.atext() == question + "ok"
    return str(value)


def test_t05_an_async_program_runs_on_the_callers_loop() -> None:
    seen: list[Any] = []

    @function
    async def noting(s: ProgramState) -> None:
        seen.append(asyncio.get_running_loop())

    async def main() -> None:
        state = await asks_async.arun("why ", backend=ScriptedBackend(latency_s=0.001))
        assert state.ret_value == "ok"
        assert state["x"] == "ok"
        await noting.arun(backend=ScriptedBackend())
        assert seen == [asyncio.get_running_loop()]

    asyncio.run(main())


def test_t05_an_async_program_runs_from_sync_code() -> None:
    assert asks_async.run(backend=ScriptedBackend(latency_s=0.001)).ret_value == "ok"


def test_t05_a_def_program_can_be_awaited() -> None:
    @function
    def plain(s: ProgramState) -> str:
        s += "a" + gen("x")
        return str(s["x"])

    async def main() -> list[ProgramState]:
        backend = ScriptedBackend(latency_s=0.002)
        return await asyncio.gather(*(plain.arun(backend=backend) for _ in range(20)))

    assert [state.ret_value for state in asyncio.run(main())] == ["ok"] * 20


@pytest.mark.parametrize("from_async", [True, False])
def test_t05_1000_programs_at_once_need_no_1000_threads(from_async: bool) -> None:
    most_threads = 0

    @function
    async def program(s: ProgramState) -> int:
        nonlocal most_threads
        s += "a" + gen("x")
        await s.aget("x")
        most_threads = max(most_threads, threading.active_count())
        return 1

    class Holding(ScriptedBackend):
        """Answers when 1,000 calls are there."""

        async def generate(
            self, call: GenerateCall, on_delta: OnDelta | None = None
        ) -> GenerateResult:
            self.num_waiting += 1
            while self.num_waiting < 1000:
                await asyncio.sleep(0.01)
            return await super().generate(call, on_delta)

        num_waiting = 0

    backend = Holding()
    before = threading.active_count()
    if from_async:
        states = asyncio.run(program.arun_batch([{}] * 1000, backend=backend))
    else:
        states = list(program.run_batch([{}] * 1000, backend=backend))
    assert sum(state.ret_value for state in states) == 1000
    assert most_threads <= before + 1
    assert backend.num_waiting == 1000


def test_t02_bind_keeps_every_option_of_the_function() -> None:
    @function(num_api_spec_tokens=7)
    def program(s: ProgramState, word: str, tail: str = "T") -> None:
        """Doc."""
        s += word + tail + gen("x")

    bound = program.bind(word="w").bind(tail="U")
    assert bound.num_api_spec_tokens == program.num_api_spec_tokens == 7
    assert (bound.func, bound.__doc__, bound.is_async) == (program.func, "Doc.", False)
    assert bound.bound_arguments == {"word": "w", "tail": "U"}
    assert program.bound_arguments == {}
    state = bound.run(backend=(backend := ScriptedBackend()), temperature=0.5)
    assert state.text() == "wUok"
    assert backend.calls[0].sampling is not None
    assert backend.calls[0].sampling.temperature == 0.5
    with pytest.raises(TypeError, match="word"):
        bound.run_batch([{"word": "again"}], backend=backend)


def test_t04_awaited_batches_have_the_same_policy() -> None:
    numbers = [{"number": number} for number in (1, 7, 13)]
    with pytest.raises(BatchError, match=r"item 1 of the batch") as caught:
        asyncio.run(double.arun_batch(numbers, backend=numbered()))
    assert caught.value.index == 1
    states = asyncio.run(double.arun_batch(numbers, backend=numbered(), on_error="return"))
    assert [type(state.error()).__name__ for state in states] == [
        "NoneType", "GenerationError", "ValueError",
    ]  # fmt: skip


def test_t06_no_thread_and_no_call_is_left_by_a_generator_that_is_dropped() -> None:
    before = set(threading.enumerate())
    backend = ScriptedBackend("x", latency_s=(0.0, 0.01))
    numbers = [{"number": number} for number in range(20, 120)]
    states = double.run_batch(numbers, backend=backend, generator_style=True, num_threads=8)
    assert next(states).ret_value == 40
    assert any(thread.name == "espalier-program" for thread in threading.enumerate())
    del states
    for thread in set(threading.enumerate()) - before:
        if thread.name == "espalier-program":
            thread.join(10)
            assert not thread.is_alive()
    assert backend._in_flight == 0
    assert len(backend.calls) < 100
