"""Section 7 of the reference: reasoning apart from the answer."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from typing import Any
from unittest import mock

import pytest
from pydantic import BaseModel
from tests.backends.toy import toy_backend
from tests.lang.appending import run

from espalier.backends.scripted import PlainRoles, ScriptedBackend, ScriptedCall
from espalier.constraint import ConstraintKind
from espalier.errors import (
    BackendError,
    GenerationError,
    ProgramError,
    RequestCancelledError,
    UserInputError,
)
from espalier.lang.api import assistant, gen, select, separate_reasoning, user
from espalier.lang.function import function
from espalier.lang.graph_json import graph_from_json, graph_to_json, same_graph
from espalier.lang.interpreter import StreamExecutor
from espalier.lang.ir import SglExprList, SglGen, SglSeparateReasoning
from espalier.lang.reasoning_format import (
    MODEL_TYPES,
    ReasoningMarks,
)
from espalier.lang.state import ProgramState

R1 = "deepseek-r1"
THOUGHT = "<think>\nLet me see.\n</think>\n\nIt is 42.\n"


def thinking(name: str = "x", model_type: str = R1, **given: Any) -> SglExprList:
    options = {"keep_reasoning": given.pop("keep_reasoning", False)}
    return separate_reasoning(gen(name, **given), model_type=model_type, **options)


# The expression, as the reference's own tests look at it.


def test_the_expression_is_a_list_of_the_gen_and_the_separation() -> None:
    plain = gen("test_var")
    expr = separate_reasoning(plain, model_type=R1)
    assert isinstance(expr, SglExprList)
    assert len(expr.expr_list) == 2
    first, last = expr.expr_list
    assert first == plain
    assert isinstance(last, SglSeparateReasoning)
    assert (last.model_type, last.name) == (R1, "test_var_reasoning_content")
    assert last.process_name_for_reasoning("other") == "other_reasoning_content"
    assert (
        repr(last) == "SeparateReasoning(model_type=deepseek-r1, name=test_var_reasoning_content)"
    )
    # A type that is not known is refused where it is appended.
    unknown = separate_reasoning(plain, model_type="invalid-model")
    assert isinstance(unknown, SglExprList)
    with pytest.raises(UserInputError, match="'invalid-model'; deepseek-r1,"):
        run("q", unknown, backend=ScriptedBackend())
    with pytest.raises(UserInputError, match="model_type None"):
        run("q", separate_reasoning(plain), backend=ScriptedBackend())


def test_a_list_of_expressions_is_separated_gen_by_gen() -> None:
    expr = separate_reasoning("a:" + gen("a") + " b:" + gen("b"), model_type=R1)
    assert isinstance(expr.expr_list[1], SglSeparateReasoning)
    assert expr.expr_list[1].name == "b_reasoning_content"
    state = run(
        "q ", expr, " end", backend=ScriptedBackend({"a:": "r1</think>A", "b:": "r2</think>B"})
    )
    assert state.text() == "q a:A b:B end"
    assert (state["a_reasoning_content"], state["b_reasoning_content"]) == ("r1", "r2")


@pytest.mark.parametrize("wrong", [gen(), None, "text", select("x", ["a", "b"])])
def test_without_a_gen_or_a_name_it_raises(wrong: Any) -> None:
    with pytest.raises(ValueError, match="separate_reasoning was given"):
        separate_reasoning(wrong, model_type=R1)


def test_a_separation_without_its_gen_just_before_raises_and_appends_nothing() -> None:
    def program(s: ProgramState) -> None:
        parts = thinking().expr_list
        for wrong in (parts[1], [parts[1], parts[0]], [*parts, parts[1]]):
            with pytest.raises(ProgramError, match="without its Gen"):
                s += wrong

    assert function(program).run(backend=ScriptedBackend()).text() == ""


def test_the_executor_of_the_reference_splits_a_variable_and_the_text() -> None:
    class Parser:
        def __init__(self, model_type: str) -> None:
            self.model_type = model_type

        def parse_non_stream(self, text: str) -> tuple[str, str]:
            return f"[reasoning of {self.model_type}] {text}", f"[answer] {text}"

    executor = StreamExecutor(mock.MagicMock(), {}, {}, {"role_map": {}}, False, use_thread=False)
    executor.variables = {"v": "Test content"}
    executor.variable_event = {"v": threading.Event(), "v_reasoning_content": threading.Event()}
    executor.cur_role, executor.cur_role_begin_pos, executor.text_ = "assistant", 0, "Test content"
    with mock.patch("espalier.lang.reasoning_format.ReasoningParser", Parser):
        executor._execute_separate_reasoning(SglSeparateReasoning(R1, expr=SglGen("v")))
    assert executor.variables == {
        "v": "[answer] Test content",
        "v_reasoning_content": "[reasoning of deepseek-r1] Test content",
    }
    assert executor.variable_event["v_reasoning_content"].is_set()
    assert executor.text_ == "[answer] Test content"


# T-50


@pytest.mark.parametrize("stream", [False, True])
def test_t50_the_variables_hold_answer_and_reasoning_and_the_text_the_answer(stream: bool) -> None:
    state = run(
        user("q"),
        assistant("So: " + thinking() + " Bye."),
        backend=ScriptedBackend(THOUGHT),
        stream=stream,
    )
    assert state["x"] == "It is 42."
    assert state["x_reasoning_content"] == "Let me see."
    assert state.text() == "USER:q\nASSISTANT:So: It is 42. Bye.\n"
    assert state.messages()[-1]["content"] == "So: It is 42. Bye."
    assert state.get_meta_info("x")["finish_reason"] == {"type": "stop"}
    assert state.get_meta_info("x_reasoning_content") == state.get_meta_info("x")
    assert state.usage().calls == 1


def test_t50_it_works_outside_roles_and_the_next_call_sees_the_answer_alone() -> None:
    backend = ScriptedBackend({"Q:": THOUGHT, "And? ": "yes"})
    state = run("Q:", thinking(), "\nAnd? ", gen("y"), backend=backend)
    assert state.text() == "Q:It is 42.\nAnd? yes"
    assert backend.calls[1].text == "Q:It is 42.\nAnd? "


def test_t50_two_streams_come_piece_by_piece_and_no_mark_leaks() -> None:
    answer = "<think>one two three</think>\n\nfour five six\n"
    state = run("Q:", thinking(), "!", backend=ScriptedBackend(answer, tokens="byte"), stream=True)
    reasoning = list(state.text_iter("x_reasoning_content"))
    assert "".join(reasoning) == "one two three"
    assert "".join(state.text_iter("x")) == "four five six"
    assert "".join(state.text_iter()) == "Q:four five six!"
    assert len(state.stream.variables.get("x").feeds[0]._pieces) > 5  # type: ignore[union-attr]

    async def pieces() -> list[str]:
        again = run("Q:", thinking(), backend=ScriptedBackend(answer), stream=True)
        return [piece async for piece in again.text_async_iter("x_reasoning_content")]

    assert "".join(asyncio.run(pieces())) == "one two three"


@pytest.mark.parametrize("stream", [False, True])
def test_t50_with_n_each_sample_is_split(stream: bool) -> None:
    answers = ["a</think>A", "b</think> B ", "still thinking"]
    state = run("Q:", thinking(n=3), "!", backend=ScriptedBackend([answers]), stream=stream)
    assert state["x"] == ["A", "B", ""]
    assert state["x_reasoning_content"] == ["a", "b", "still thinking"]
    assert state.text() == "Q:A!"
    assert len(state.get_meta_info("x")) == 3
    if stream:
        found = [
            ["".join(state.text_iter(name, sample=i)) for i in range(3)]
            for name in ("x", "x_reasoning_content")
        ]
        assert found == [state["x"], state["x_reasoning_content"]]


def test_t50_forks_take_both_variables_and_gather_them() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "Q:" + thinking("early")
        forks = s.fork(2)
        forks += lambda i: f" {i}:" + thinking()
        forks.join()
        assert forks[1]["early_reasoning_content"] == "e"

    script = {"Q:": "e</think>E", " 0:": "a</think>A", " 1:": "b</think>B"}
    state = program.run(backend=ScriptedBackend(script))
    assert (state["x"], state["x_reasoning_content"]) == (["A", "B"], ["a", "b"])


@pytest.mark.parametrize("stream", [False, True])
def test_t50_an_error_is_that_of_both_variables(stream: bool) -> None:
    state = run("Q:", thinking(), backend=ScriptedBackend(BackendError("down")), stream=stream)
    for name in ("x", "x_reasoning_content"):
        with pytest.raises(GenerationError, match="down") as raised:
            state[name]
        assert isinstance(raised.value.__cause__, BackendError)
        if stream:
            with pytest.raises(GenerationError, match="down"):
                list(state.text_iter(name))


# T-51


def in_two_parts(reasoning: str, answer: str) -> ScriptedBackend:
    """Answers with reasoning, then (behind its mark) with the answer."""
    return ScriptedBackend(lambda call: answer if "</think>" in call.text else reasoning)


@pytest.mark.parametrize("stream", [False, True])
def test_t51_a_constraint_is_the_answers_alone(stream: bool) -> None:
    backend = in_two_parts("<think>\nsome 7 things\n</think>41 that are not read", "42")
    state = run("Q:", thinking(dtype=int), "!", backend=backend, stream=stream)
    assert (state["x"], state["x_reasoning_content"]) == ("42", "some 7 things")
    assert state.text() == "Q:42!"
    first, second = (call for call in backend.calls if call.kind == "generate")
    assert first.constraint is None
    assert second.constraint is not None
    assert (second.constraint.kind, second.constraint.text) == (ConstraintKind.DTYPE, "int")
    assert second.text == "Q:<think>\nsome 7 things\n</think>\n\n"
    assert first.sampling is not None
    assert first.sampling.stop == ("</think>",)
    assert second.sampling is not None
    assert second.sampling.stop == (" ", "\n")
    if stream:
        assert "".join(state.text_iter("x")) == "42"
        assert "".join(state.text_iter("x_reasoning_content")) == "some 7 things"
        assert "".join(state.text_iter()) == "Q:42!"


def test_t51_stops_are_the_answers_alone() -> None:
    backend = in_two_parts("a\nb\nc</think>", "one line\nand more")
    state = run("Q:", thinking(stop="\n"), backend=backend)
    assert (state["x"], state["x_reasoning_content"]) == ("one line", "a\nb\nc")
    assert state.get_meta_info("x")["finish_reason"] == {"type": "stop", "matched": "\n"}


def test_t51_a_stop_regex_and_stop_tokens_are_the_answers_alone() -> None:
    backend = in_two_parts("a1b</think>", "one 2")
    state = run("Q:", thinking(stop_regex="[0-9]", stop_token_ids=[7]), backend=backend)
    assert state["x_reasoning_content"] == "a1b"
    found = [
        (c.sampling.stop_regex, c.sampling.stop_token_ids) for c in backend.calls if c.sampling
    ]
    assert found == [((), ()), (("[0-9]",), (7,))]


def test_t51_a_type_is_read_from_the_answer() -> None:
    class City(BaseModel):
        name: str

    state = run(
        "Q:", thinking(json_schema=City), backend=in_two_parts("hm</think>", '{"name":"Lima"}')
    )
    assert state["x"] == City(name="Lima")
    assert state["x_reasoning_content"] == "hm"
    assert state.text() == 'Q:{"name":"Lima"}'


def test_t51_max_tokens_bounds_both_parts_together_and_the_counts_are_sums() -> None:
    words = "one two three four five six seven</think>"
    backend = in_two_parts(words, "8 9 10 11 12")
    state = run("Q:", thinking(regex=".*", max_tokens=10), backend=backend)
    meta = state.get_meta_info("x")
    assert state["x"] == "8 9 10"
    assert (meta["completion_tokens"], meta["reasoning_tokens"]) == (10, 7)
    assert meta["finish_reason"]["type"] == "length"
    assert meta["prompt_tokens"] == 1
    assert (state.usage().calls, state.usage().generated_tokens) == (2, 10)
    # All of it reasoning: there is no answer, and a form says that it could not be read.
    short = run("Q:", thinking(regex=".*", max_tokens=3), backend=in_two_parts(words, "8"))
    assert (short["x"], short["x_reasoning_content"]) == ("", "one two three")
    assert short.get_meta_info("x")["finish_reason"] == {"type": "length", "length": 3}
    unread = run("Q:", thinking(json_schema={}, max_tokens=3), backend=in_two_parts(words, "8"))
    with pytest.raises(GenerationError, match="max_new_tokens"):
        unread["x"]
    assert unread["x_reasoning_content"] == "one two three"


@pytest.mark.parametrize("stream", [False, True])
def test_t51_a_model_that_reasons_only_sometimes_answers_at_once_where_it_does_not(
    stream: bool,
) -> None:
    long = "<think>" + "word " * 40 + "</think>rest"

    def answer(call: ScriptedCall) -> Any:
        assert call.sampling is not None
        if call.constraint is not None:
            return "42"
        if call.text == "Q:":
            return [long, "no thought at all"]
        return "and so on</think>rest"

    backend = ScriptedBackend(answer)
    state = run("Q:", thinking(model_type="qwen3", n=2, dtype=int), backend=backend, stream=stream)
    assert state["x"] == ["42", "42"]
    first, second = state["x_reasoning_content"]
    assert first == ("word " * 15 + "word").rstrip() + "and so on"
    assert second == ""
    prompts = sorted(call.text for call in backend.calls if call.constraint is not None)
    assert prompts[0] == "Q:"
    assert prompts[1].endswith("and so on</think>\n\n")
    assert "reasoning_tokens" not in state.get_meta_info("x")[1]


def test_t51_seeds_of_the_parts_differ_and_are_the_same_again() -> None:
    def seeds() -> list[Any]:
        backend = in_two_parts("r</think>", "42")
        run("Q:", thinking(dtype=int, n=2, seed=7), backend=backend).sync()
        return [c.sampling.sampling_seed for c in backend.calls if c.sampling]

    assert seeds() == seeds()
    assert len(set(seeds())) == 3


def test_t51_on_the_engine_reasoning_is_free_and_the_answer_has_its_form() -> None:
    marks = ReasoningMarks("ab", "cd", " ", is_open=True)
    backend = toy_backend()
    try:
        with mock.patch.dict(MODEL_TYPES, {"toy": marks}):
            states = [
                run(
                    "abc a",
                    thinking(
                        model_type="toy",
                        regex="[ab]{3}",
                        max_tokens=60,
                        n=3,
                        seed=seed,
                        ignore_eos=True,
                    ),
                    backend=backend,
                    stream=stream,
                )
                for stream in (False, True)
                for seed in range(3)
            ]
            answers = [answer for state in states for answer in state["x"]]
        full = [answer for answer in answers if answer]
        assert full
        assert all(re.fullmatch("[ab]{3}", answer) for answer in full)
        assert [s["x"] for s in states[:3]] == [s["x"] for s in states[3:]]
        assert all("cd" not in text for s in states for text in s["x_reasoning_content"])
    finally:
        backend.shutdown()


def test_t51_an_error_of_one_answer_cancels_those_of_the_other_samples() -> None:
    def answer(call: ScriptedCall) -> Any:
        if "</think>" not in call.text:
            return ["a</think>", "b</think>"]
        return BackendError("down") if "b</think>" in call.text else "42"

    backend = ScriptedBackend(answer, latency_s=0.01)
    state = run("Q:", thinking(dtype=int, n=2), backend=backend)
    for name in ("x", "x_reasoning_content"):
        with pytest.raises(GenerationError, match="down"):
            state[name]


@pytest.mark.parametrize("is_answer", [False, True])
def test_t51_cancelling_ends_whichever_call_is_at_work(is_answer: bool) -> None:
    states: list[ProgramState] = []

    def answer(call: ScriptedCall) -> str:
        if ("</think>" in call.text) is is_answer:
            states[0].cancel()  # the call is at work for a while yet
        return "42" if "</think>" in call.text else "a</think>"

    def program(s: ProgramState) -> None:
        states.append(s)
        s += "Q:" + thinking(dtype=int, n=2)

    state = function(program).run(backend=ScriptedBackend(answer, latency_s=0.05))
    assert isinstance(state.error(), RequestCancelledError)
    with pytest.raises(GenerationError, match="cancelled"):
        state["x_reasoning_content"]


# T-52


@pytest.mark.parametrize("stream", [False, True])
def test_t52_keep_reasoning_keeps_all_that_the_model_wrote(stream: bool) -> None:
    backend = ScriptedBackend({"Q:": THOUGHT, "And? ": "yes"})
    state = run(
        "Q:", thinking(keep_reasoning=True), "And? ", gen("y"), backend=backend, stream=stream
    )
    assert state.text() == f"Q:{THOUGHT}And? yes"
    assert (state["x"], state["x_reasoning_content"]) == ("It is 42.", "Let me see.")
    if stream:
        assert "".join(state.text_iter()) == state.text()
    # The tokens stay as they were generated, so that the next call finds them in the cache.
    assert any(getattr(s, "token_ids", ()) for s in backend.calls[1].prompt)


@pytest.mark.parametrize("stream", [False, True])
def test_t52_in_parts_too(stream: bool) -> None:
    state = run(
        "Q:",
        thinking(keep_reasoning=True, dtype=int),
        "!",
        backend=in_two_parts("<think>hm</think>", "42"),
        stream=stream,
    )
    assert state.text() == "Q:<think>hm</think>\n\n42!"
    assert (state["x"], state["x_reasoning_content"]) == ("42", "hm")
    if stream:
        assert "".join(state.text_iter()) == state.text()
    with pytest.raises(UserInputError, match="keep_reasoning"):
        separate_reasoning(gen("x"), model_type=R1, keep_reasoning=1)  # type: ignore[arg-type]


@function
def two_steps(s: ProgramState, question: str, num_tokens: int) -> None:
    s += user(question)
    s += assistant("So: " + thinking("x", n=2) + " " + thinking("y", max_tokens=num_tokens))
    s += " then " + s["y_reasoning_content"] + s["x_reasoning_content"][1]
    forks = s.fork(2)
    forks += thinking("z", dtype=int, keep_reasoning=True)
    forks.join()


def test_it_is_traced_and_compiles_to_what_the_interpreter_gives() -> None:
    def answer(call: ScriptedCall) -> Any:
        if call.constraint is not None:
            return "42"
        assert call.sampling is not None
        samples = [f"r{len(call.text)}{i}</think>a{i}" for i in range(call.sampling.n)]
        return samples if len(samples) > 1 else samples[0]

    compiled = two_steps.compile()
    given: dict[str, Any] = {"question": "q", "num_tokens": 9}
    states = [
        program.run(backend=ScriptedBackend(answer), **given) for program in (two_steps, compiled)
    ]
    assert states[0].text() == states[1].text()
    assert states[0].messages() == states[1].messages()
    for name in ("x", "y", "z"):
        for variable in (name, f"{name}_reasoning_content"):
            assert states[0][variable] == states[1][variable]
    shown = list(map(repr, two_steps.trace().nodes))
    assert "SeparateReasoning(model_type=deepseek-r1, name=y_reasoning_content)" in shown
    graph = two_steps.trace().graph
    assert same_graph(graph_from_json(json.loads(json.dumps(graph_to_json(graph)))), graph)


class Stopping(PlainRoles):
    stop = ("STOP", "###STOP")


@pytest.mark.parametrize("keep_reasoning", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_template_stop_that_ends_the_reasoning_shows_nowhere(
    keep_reasoning: bool, stream: bool
) -> None:
    @function
    def ask(s: ProgramState) -> None:
        s += "Q" + thinking(stop="\n", keep_reasoning=keep_reasoning)

    backend = ScriptedBackend("<think>a # b ###STOP c", template=Stopping(), tokens="byte")
    state = ask.run(backend=backend, stream=stream)
    pieces = list(state.text_iter("x_reasoning_content"))
    assert "".join(pieces) == state["x_reasoning_content"] == "a # b"
    assert (state["x"], "STOP" in "".join(state.text_iter())) == ("", False)


@pytest.mark.parametrize("keep_reasoning", [False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_a_stop_ends_has_no_space_around_it(
    keep_reasoning: bool, stream: bool
) -> None:
    @function
    def ask(s: ProgramState) -> None:
        s += "Q" + thinking(stop="\n", keep_reasoning=keep_reasoning) + "!"

    backend = ScriptedBackend(
        lambda call: "  4 5 \nz" if "</think>" in call.text else "<think>so</think>", tokens="byte"
    )
    state = ask.run(backend=backend, stream=stream)
    assert "".join(state.text_iter("x")) == state["x"] == "4 5"
    text = "Q<think>so</think>\n\n  4 5 !" if keep_reasoning else "Q4 5!"
    assert "".join(state.text_iter()) == state.text() == text
