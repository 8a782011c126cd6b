"""Section 12 of the reference: tracing and compiling."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.lang.traceable_programs import PROGRAMS, echoing_backend, made, seen

import espalier as sgl
from espalier.errors import TraceError, UnknownVariableError
from espalier.lang.function import SglFunction


@pytest.mark.parametrize("name", PROGRAMS)
def test_t100_everything_but_branches_on_generated_values_is_traced(name: str) -> None:
    function, arguments = PROGRAMS[name]
    traced = function.trace()
    assert set(traced.graph.arguments) == set(function.signature.parameters) - {"s"}
    assert traced.nodes
    assert set(traced.variables) == {
        n
        for n in function.run(**arguments, backend=echoing_backend()).stream.variables
        if n is not None
    }


def branches_on_text(s: Any, q: str) -> None:
    s += q + sgl.gen("x")
    if s["x"] == "yes":
        s += "!"


def branches_on_truth(s: Any, q: str) -> None:
    s += q + sgl.gen("x")
    if s["x"]:
        s += "!"


def branches_on_argument(s: Any, q: str) -> None:
    if "?" in q:
        s += "question"


def branches_on_type(s: Any, q: Any) -> None:
    if isinstance(q, list):
        s += "list"


def counts(s: Any, q: str) -> None:
    s += "x" * len(q)


def converts(s: Any, q: str) -> None:
    s += q + sgl.gen_int("x")
    s += "a" * int(s["x"])


def strips(s: Any, q: str) -> None:
    s += q.strip()


def joins(s: Any, q: str) -> None:
    s += ", ".join([q, "b"])


def formats(s: Any, q: str) -> None:
    s += f"Q: {q}"


def formats_old(s: Any, q: str) -> None:
    s += "Q: %s" % q  # noqa: UP031


def loops(s: Any, q: list[str]) -> None:
    for part in q:
        s += part


def asks_for_errors(s: Any, q: str) -> None:
    s += q + sgl.gen("x")
    if s.error():
        s += "!"


def streams(s: Any, q: str) -> None:
    s += q + sgl.gen("x")
    for _ in s.text_iter("x"):
        s += "."


def runs_a_batch(s: Any, q: str) -> None:
    PROGRAMS["few_shot"][0].run_batch([{"question": q}])


BRANCHES = [
    branches_on_text,
    branches_on_truth,
    branches_on_argument,
    branches_on_type,
    counts,
    converts,
    strips,
    joins,
    formats,
    formats_old,
    loops,
    asks_for_errors,
    streams,
    runs_a_batch,
]


@pytest.mark.parametrize("body", BRANCHES)
def test_t100_a_line_that_needs_a_value_raises_and_is_named(body: Any) -> None:
    with pytest.raises(TraceError) as caught:
        sgl.function(body).trace()
    code = body.__code__
    last_line = max(line for _, _, line in code.co_lines() if line is not None)
    file, _, line = str(caught.value.location).rpartition(":")
    assert file == code.co_filename
    assert code.co_firstlineno < int(line) <= last_line
    assert str(caught.value).startswith(f"{file}:{line}: ")


@pytest.mark.parametrize("name", PROGRAMS)
def test_t101_compiled_is_interpreted(name: str) -> None:
    function, arguments = PROGRAMS[name]
    plain, compiled = echoing_backend(), echoing_backend()
    wanted = seen(function.run(**arguments, backend=plain, seed=1))
    assert seen(function.compile().run(**arguments, backend=compiled, seed=1)) == wanted
    assert made(compiled) == made(plain)


@pytest.mark.parametrize("name", PROGRAMS)
def test_t101_compiled_batches_and_streams_are_interpreted_ones(name: str) -> None:
    function, arguments = PROGRAMS[name]
    wanted = [
        seen(s) for s in function.run_batch([arguments] * 3, backend=echoing_backend(), seed=1)
    ]
    compiled = function.compile()
    found = compiled.run_batch([arguments] * 3, backend=echoing_backend(), seed=1, num_threads=2)
    assert [seen(state) for state in found] == wanted
    streamed = compiled.run(**arguments, backend=echoing_backend(), seed=1, stream=True)
    pieces = "".join(streamed.text_iter())
    assert pieces == streamed.text()


OPTIONS: dict[str, Any] = {
    "max_new_tokens": 7,
    "stop": "q",
    "stop_token_ids": [3],
    "temperature": 0.3,
    "top_p": 0.8,
    "top_k": 5,
    "min_p": 0.1,
    "frequency_penalty": 0.2,
    "presence_penalty": 0.3,
    "ignore_eos": True,
    "repetition_penalty": 1.1,
    "logit_bias": {3: 1.0},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_t101_compiled_programs_take_all_sampling_options(option: str) -> None:
    function, arguments = PROGRAMS["expert"]
    given = {**arguments, option: OPTIONS[option]}
    plain, compiled = echoing_backend(), echoing_backend()
    wanted = seen(function.run(**given, backend=plain))
    assert seen(function.compile().run(**given, backend=compiled)) == wanted
    assert made(compiled) == made(plain)
    assert any(getattr(call.sampling, option) not in (None, (), {}) for call in compiled.calls)


def test_t102_explain_names_each_kind_of_pass() -> None:
    @sgl.function
    def f(s: Any, topic: str) -> None:
        s += "A"
        s += "B" + topic + sgl.gen("plan")
        forks = s.fork(2)
        forks += "Write one line: " + sgl.gen("line") + sgl.gen("extra")
        forks.join()
        s += s["line"][0] + s["line"][1] + sgl.gen("title")

    shown = f.compile(outputs=["title"]).explain(lambda text: len(text.split()))
    assert "drop dead generations: " in shown
    assert "merge constants: 1 constant" in shown
    assert "share fork prefixes: the 2 children" in shown
    assert "saves 3 tokens" in shown
    assert "submit together: 2 waits" in shown


def test_t103_cache_returns_the_tokens_that_every_run_begins_with() -> None:
    @sgl.function
    def f(s: Any, question: str) -> None:
        s += sgl.system("Be brief and kind.")
        s += "Question: " + question + sgl.gen("answer")

    backend = echoing_backend()
    assert f.cache(backend) == 6
    assert [(call.kind, call.text) for call in backend.calls] == [
        ("prefill", "SYSTEM:Be brief and kind.\nQuestion: ")
    ]
    bound = f.bind(question="Why?")
    assert bound.cache(backend) == 6
    assert sgl.function(lambda s, x: s.__iadd__(x)).cache(backend) == 0


def test_t103_a_bug_of_the_body_is_logged_and_what_came_before_is_cached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @sgl.function
    def f(s: Any, question: str) -> None:
        s += "Constant text. "
        raise KeyError("a bug")

    backend = echoing_backend()
    with caplog.at_level(logging.WARNING, "espalier.lang"):
        assert f.cache(backend) == 3
    (record,) = caplog.records
    assert "f: the body raised" in record.message
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert backend.calls[-1].text == "Constant text. "


def test_t103_a_trace_raises_a_bug_of_the_body_as_it_is() -> None:
    @sgl.function
    def f(s: Any) -> None:
        raise KeyError("a bug")

    @sgl.function
    def g(s: Any) -> None:
        s += s["nothing"]

    with pytest.raises(KeyError, match="a bug"):
        f.trace()
    with pytest.raises(UnknownVariableError, match="no variable 'nothing'"):
        g.compile()


# The shapes of upstream's own tests of its tracer.


def test_upstream_few_shot_qa_is_traced_with_every_node(capsys: pytest.CaptureFixture[str]) -> None:
    function, _ = PROGRAMS["few_shot"]
    tracer = function.trace()
    tracer.last_node.print_graph_dfs()
    shown = capsys.readouterr().out
    for part in ("Constant('Questions with answers.", "Argument(question)", "Gen('answer')"):
        assert part in shown
    assert repr(tracer.last_node) == "Gen('answer')"


def test_upstream_select_is_traced() -> None:
    @sgl.function
    def capital(s: Any) -> None:
        s += "The capital of France is"
        s += sgl.select("capital", choices=["Paris. ", "London. "])
        s += "It is a city" + sgl.gen("description", stop=".")

    kinds = [repr(node).split("(")[0] for node in capital.trace().nodes]
    assert kinds == ["Constant", "Select", "Constant", "Gen"]


def test_upstream_an_abstract_argument_in_an_f_string_is_a_type_error() -> None:
    @sgl.function
    def wrong(s: Any, question: str) -> None:
        s += f"The question is {question}"

    with pytest.raises(TypeError, match="puts into an f-string argument 'question'"):
        wrong.trace()


def test_upstream_functions_call_functions_and_run_compiled() -> None:
    @sgl.function
    def expand(s: Any, tip: str) -> None:
        s += "Please expand this tip: " + tip + "\n" + sgl.gen("detailed_tip")

    @sgl.function
    def suggestion(s: Any, topic: str) -> Any:
        s += "Two tips about " + topic + "."
        s += "1." + sgl.gen("tip_1", stop=["1.", "2.", "\n\n"])
        s += "2." + sgl.gen("tip_2", stop=["1.", "2.", "\n\n"])
        branch_1 = expand(tip=s["tip_1"])
        branch_2 = expand(tip=s["tip_2"])
        s += "Tip 1: " + branch_1["detailed_tip"] + "\nTip 2: " + branch_2["detailed_tip"] + "\n"
        s += "In summary" + sgl.gen("summary")

    compiled = suggestion.compile()
    compiled.print_graph()
    backend = echoing_backend()
    wanted = suggestion.run(topic="staying healthy", backend=backend)
    ret = compiled.run(topic="staying healthy", backend=echoing_backend())
    assert ret.text() == wanted.text()
    rets = compiled.run_batch([{"topic": f"{i}"} for i in range(3)], backend=echoing_backend())
    assert [state["summary"][0] for state in rets] == ["<"] * 3


def test_upstream_roles_are_compiled() -> None:
    function, arguments = PROGRAMS["chat"]
    compiled = function.compile(backend=echoing_backend())
    assert (
        compiled.run(**arguments).messages()
        == function.run(**arguments, backend=echoing_backend()).messages()
    )


def test_upstream_forks_are_traced_and_run() -> None:
    @sgl.function
    def tips(s: Any) -> None:
        s += "Here are two tips.\n1. Balanced diet.\n2. Exercise.\n\n"
        forks = s.fork(3)
        for i in range(3):
            forks[i] += f"Expand tip {i + 1}:\n" + sgl.gen("detailed_tip")
        s += "Tip 1:" + forks[0]["detailed_tip"] + "\n" + forks[1]["detailed_tip"]
        s += "In summary" + sgl.gen("summary")

    kinds = [repr(node).split("(")[0] for node in tips.trace().nodes]
    assert kinds.count("Fork") == 1
    assert kinds.count("GetForkItem") == 3
    assert seen(tips.compile().run(backend=echoing_backend())) == seen(
        tips.run(backend=echoing_backend())
    )


def test_upstream_bound_functions_are_traced_and_cached() -> None:
    @sgl.function
    def few_shot(s: Any, prompt: str, question: str) -> None:
        s += prompt
        s += "Q: What is the capital of France?\nA: Paris\n"
        s += "Q: " + question + "\nA:" + sgl.gen("answer", stop="\n")

    bound: SglFunction = few_shot.bind(prompt="Questions with answers.\n\n")
    tracer = bound.trace()
    assert tracer.graph.arguments == ("question",)
    backend = echoing_backend()
    bound.cache(backend)
    assert backend.calls[0].text.endswith("A: Paris\nQ: ")
