from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import BatchError, UserInputError
from espalier.lang import workers
from espalier.lang.api import gen
from espalier.lang.function import function
from espalier.lang.state import ProgramState


@function
def double(s: ProgramState, number: int, word: str = "w") -> int:
    s += f"{word} {number}" + gen("x")
    if number == 13:
        raise ValueError("unlucky")
    return number * 2


def echo(call: ScriptedCall) -> str | BaseException:
    last = call.text.split()[-1]
    return RuntimeError("seventh") if last == "7" else f"<{last}>"


def backend(**options: Any) -> ScriptedBackend:
    return ScriptedBackend(echo, latency_s=(0, 0.005), **options)


def items(count: int, start: int = 20) -> list[dict[str, Any]]:
    return [{"number": start + index} for index in range(count)]


def test_results_are_in_order_and_finished() -> None:
    states = double.run_batch(items(30), backend=backend(), num_threads=7)
    assert [state.ret_value for state in states] == [2 * (20 + index) for index in range(30)]
    assert all(state.stream.is_settled() for state in states)
    assert [state["x"] for state in states[:2]] == ["<20>", "<21>"]


def test_items_may_be_lists_and_tuples_in_order() -> None:
    states = double.run_batch([(20,), [21, "v"], {"number": 22}], backend=backend())
    assert [state.text() for state in states] == ["w 20<20>", "v 21<21>", "w 22<22>"]


def test_an_empty_batch_is_an_empty_list() -> None:
    assert double.run_batch([]) == []
    assert list(double.run_batch([], generator_style=True)) == []


@pytest.mark.parametrize("num_threads", [1, 3])
def test_num_threads_bounds_what_is_at_work(num_threads: int) -> None:
    scripted = ScriptedBackend("x", latency_s=0.003)

    @function
    def waits(s: ProgramState) -> str:
        s += "a" + gen("x")
        return str(s["x"])

    waits.run_batch([{}] * 12, backend=scripted, num_threads=num_threads)
    assert scripted.max_in_flight == num_threads


@pytest.mark.parametrize(
    "options",
    [{"on_error": "skip"}, {"num_threads": 0}, {"num_threads": "many"}, {"stream": True}],
)
def test_policies_that_do_not_exist_raise(options: dict[str, Any]) -> None:
    with pytest.raises(UserInputError):
        double.run_batch(items(2), backend=backend(), **options)


def test_a_wrong_item_raises_with_its_index_before_anything_runs() -> None:
    scripted = backend()
    with pytest.raises(TypeError, match=r"item 1 of the batch.*colour"):
        double.run_batch([{"number": 1}, {"number": 2, "colour": 1}], backend=scripted)
    with pytest.raises(UserInputError, match="item 0 of the batch is 'text'"):
        double.run_batch(["text"], backend=scripted)
    with pytest.raises(UserInputError, match="of type dict"):
        double.run_batch({"number": 1}, backend=scripted)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="number, which is no option"):
        double.run_batch([{}], number=3, backend=scripted)
    assert not scripted.calls


def test_generator_style_yields_in_order() -> None:
    states = double.run_batch(items(450), backend=backend(), generator_style=True, num_threads=16)
    assert [state.ret_value for state in states] == [2 * (20 + index) for index in range(450)]


def test_generator_style_does_not_run_far_ahead_of_its_reader() -> None:
    scripted = ScriptedBackend("x")
    states = double.run_batch(items(1000), backend=scripted, generator_style=True, num_threads=4)
    for _ in range(3):
        next(states)
    assert len(scripted.calls) <= 203
    states.close()
    # leaves_nothing_behind checks that no thread and no task is left


def test_generator_style_raises_when_the_turn_of_a_failed_item_comes() -> None:
    numbers = [{"number": number} for number in (1, 2, 7, 3)]
    seen = []
    with pytest.raises(BatchError, match="item 2"):  # noqa: PT012
        for state in double.run_batch(numbers, backend=backend(), generator_style=True):
            seen.append(state.ret_value)  # noqa: PERF401 - what came before the error counts
    assert seen == [2, 4]


def test_on_result_is_told_of_each_item_in_the_callers_thread() -> None:
    told: dict[int, Any] = {}
    caller = threading.get_ident()

    def on_result(index: int, state: ProgramState) -> None:
        assert threading.get_ident() == caller
        told[index] = state.ret_value

    double.run_batch(items(9), backend=backend(), on_result=on_result)
    assert told == {index: 2 * (20 + index) for index in range(9)}


def test_an_interrupt_ends_the_batch_and_keeps_what_was_told() -> None:
    told: list[int] = []

    def on_result(index: int, state: ProgramState) -> None:
        told.append(index)
        if len(told) == 3:
            raise KeyboardInterrupt

    scripted = ScriptedBackend("x", latency_s=(0.001, 0.01))
    with pytest.raises(KeyboardInterrupt):
        double.run_batch(items(300), backend=scripted, on_result=on_result, num_threads=4)
    assert len(told) == 3
    assert len(scripted.calls) < 100


def test_closing_a_batch_ends_the_bodies_that_wait() -> None:
    @function
    def waiting(s: ProgramState, number: int) -> None:
        s += f"{number}" + gen("x")
        _ = s["x"]

    class Slow(ScriptedBackend):
        def _draw_latency(self) -> float:
            return 0.0 if self.calls[-1].text == "0" else 60.0

    states = waiting.run_batch(
        [{"number": number} for number in range(4)],
        backend=Slow(),
        generator_style=True,
        num_threads=4,
    )
    next(states)
    states.close()


def test_a_batch_runs_in_the_callers_thread_where_no_thread_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "_budget", workers._Budget(0))
    states = double.run_batch(items(3), backend=backend())
    assert [state.ret_value for state in states] == [40, 42, 44]
    numbers = [{"number": 1}, {"number": 13}]
    yielded = double.run_batch(numbers, backend=backend(), generator_style=True, on_error="return")
    assert [type(state.error()) for state in yielded] == [type(None), ValueError]


def test_threads_go_back_to_the_budget() -> None:
    free = workers._budget._free
    double.run_batch(items(20), backend=backend(), num_threads=10)
    list(double.run_batch(items(20), backend=backend(), num_threads=10, generator_style=True))
    deadline = time.monotonic() + 5
    while workers._budget._free != free and time.monotonic() < deadline:
        time.sleep(0.001)
    assert workers._budget._free == free
