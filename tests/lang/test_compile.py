"""Compiled programs mean what interpreted ones mean; each pass keeps what it says it keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.lang.traceable_programs import (
    PROGRAMS,
    echoing_backend,
    inner,
    made,
    random_program,
    seen,
)

import espalier as sgl
from espalier.errors import GenerationError, ProgramError, TraceError, UserInputError
from espalier.lang.batch_prefix import batch_order, beginning
from espalier.lang.compiled import CompiledFunction
from espalier.lang.graph import AppendNode, DroppedNode, ForkNode, Graph
from espalier.lang.graph_json import graph_from_json, graph_to_json
from espalier.lang.ir import SglConstantText
from espalier.lang.passes.merge_constants import merge_constants
from espalier.lang.passes.share_fork_prefixes import common_start, share_fork_prefixes
from espalier.lang.passes.submit_together import submit_together


def ran(compiled: Any, arguments: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """What can be read after a run, and the calls that it made."""
    backend = echoing_backend(latency_s=(0.0, 0.002))
    state = compiled.run(**arguments, backend=backend, seed=7, **options)
    return seen(state), made(backend)


class Executed:
    """Runs a graph as it is, without passes."""

    def __init__(self, graph: Graph) -> None:
        self.compiled = CompiledFunction(graph, sgl.function)
        self.compiled.graph = graph
        self.compiled._program = sgl.function(self.compiled._body(None))

    def run(self, **options: Any) -> Any:
        return self.compiled.run(**options)


PASSES: dict[str, Any] = {
    "none": lambda graph: graph,
    "merge": lambda graph: merge_constants(graph).graph,
    "together": lambda graph: submit_together(graph).graph,
    "prefixes": lambda graph: share_fork_prefixes(graph).graph,
    "json": lambda graph: graph_from_json(json.loads(json.dumps(graph_to_json(graph)))),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("passed", PASSES)
def test_each_pass_keeps_what_programs_mean(name: str, passed: str) -> None:
    function, arguments = PROGRAMS[name]
    graph = PASSES[passed](function.trace().graph)
    assert ran(Executed(graph), arguments) == ran(function, arguments)


@pytest.mark.parametrize("block", range(10))
def test_random_programs_mean_the_same_compiled(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        function = random_program(seed)
        wanted = ran(function, {"word": "w"})
        compiled = function.compile()
        assert ran(compiled, {"word": "w"}) == wanted, seed
        again = graph_from_json(json.loads(json.dumps(compiled.to_json())))
        assert ran(CompiledFunction(again, sgl.function), {"word": "w"}) == wanted, seed


def test_merged_constants_are_one_node_and_keep_the_numbers_of_the_others() -> None:
    @sgl.function
    def f(s: Any, x: str) -> None:
        s += "a"
        s += "b"
        s += x
        s += "c" + sgl.gen("g") + "d"
        s += "e"

    done = merge_constants(f.trace().graph)
    texts = [
        node.expr.value
        for node in done.graph.nodes
        if isinstance(node, AppendNode) and isinstance(node.expr, SglConstantText)
    ]
    assert texts == ["ab", "c", "de"]
    assert [i for i, node in enumerate(done.graph.nodes) if isinstance(node, DroppedNode)] == [1, 6]
    assert done.notes[0].message.startswith("2 constants")


def test_independent_generations_are_at_work_together() -> None:
    @sgl.function
    def f(s: Any) -> None:
        forks = s.fork(3)
        s += "s" + sgl.gen("own")
        for i in range(3):
            forks[i] += "a" + sgl.gen("x")
            s += forks[i]["x"]  # an interpreted program waits here
        forks.join()

    slow, fast = echoing_backend(latency_s=0.02), echoing_backend(latency_s=0.02)
    wanted, compiled = seen(f.run(backend=slow)), seen(f.compile().run(backend=fast))
    assert wanted == compiled
    assert slow.max_in_flight <= 2
    assert fast.max_in_flight == 4


def test_children_that_begin_alike_share_it_in_the_prompt_computed_first() -> None:
    @sgl.function
    def f(s: Any) -> None:
        s += sgl.user("Go")
        forks = s.fork(2)
        for i in range(2):
            forks[i] += sgl.assistant(f"Tip number {i}:" + sgl.gen("tip"))
        forks.join()

    compiled = f.compile()
    (fork,) = (node for node in compiled.nodes if isinstance(node, ForkNode))
    assert [repr(e) for e in fork.shared] == ["RoleBegin(assistant)", "Constant('Tip number ')"]
    backend = echoing_backend()
    state = compiled.run(backend=backend)
    assert seen(state) == seen(f.run(backend=echoing_backend()))
    prefills = [call.text for call in backend.calls if call.kind == "prefill"]
    assert prefills == ["USER:Go\nASSISTANT:Tip number "]


def test_common_start_is_that_of_all_texts() -> None:
    assert common_start(["abc", "abd", "ab"]) == "ab"
    assert common_start(["abc"]) == "abc"
    assert common_start(["x", "y"]) == ""


@sgl.function
def story(s: Any, hero: str) -> None:
    s += "A story about " + hero + ":" + sgl.gen("plot")
    forks = s.fork(2)
    forks += "End:" + sgl.gen("end") + sgl.gen("moral")
    forks.join()
    s += "Title:" + sgl.gen("title") + sgl.gen("subtitle")


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        (["plot"], ["plot"]),
        (["title"], ["plot", "title"]),
        (["end"], ["plot", "end", "end"]),
        (["moral", "subtitle"], ["plot", "end", "moral", "end", "moral", "title", "subtitle"]),
    ],
)
def test_generations_that_no_output_needs_are_dropped(outputs: list[str], names: list[str]) -> None:
    compiled = story.compile(outputs=outputs)
    assert [node.variable for node in compiled.graph.calls] == names
    full, less = echoing_backend(), echoing_backend()
    wanted = story.run(hero="x", backend=full, seed=1)
    state = compiled.run(hero="x", backend=less, seed=1)
    assert [state[name] for name in outputs] == [wanted[name] for name in outputs]
    assert set(made(less)) <= set(made(full))
    assert len(made(less)) == len(names)


def test_what_no_output_named_cannot_be_read() -> None:
    state = story.compile(outputs=["title"]).run(hero="x", backend=echoing_backend())
    assert state["title"] == state.text("title")
    assert "plot" not in state
    for read in (
        lambda: state["plot"],
        state.text,
        state.messages,
        lambda: state.get_meta_info("plot"),
        lambda: list(state.text_iter()),
    ):
        with pytest.raises(ProgramError, match="compiled for the outputs 'title'"):
            read()
    assert state.error() is None
    assert state.usage().calls == 2
    (batch,) = story.compile(outputs=["plot"]).run_batch([{"hero": "y"}], backend=echoing_backend())
    with pytest.raises(ProgramError, match="not computed"):
        _ = batch["end"]


def test_outputs_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UserInputError, match=r"sets no variable 'titel'; it sets .*'title'"):
        story.compile(outputs=["titel"])
    wrong: Any
    for wrong in ("title", []):
        with pytest.raises(UserInputError, match="list of names"):
            story.compile(outputs=wrong)


def test_a_scope_that_an_output_needs_is_kept_whole() -> None:
    @sgl.function
    def f(s: Any) -> None:
        forks = s.fork(1)
        with forks[0].var_scope("all"):
            forks[0] += "p" + sgl.gen("a") + sgl.gen("b")
        forks.join()

    state = f.compile(outputs=["a"]).run(backend=echoing_backend(), seed=1)
    assert state["a"] == f.run(backend=echoing_backend(), seed=1)["a"]


@pytest.mark.parametrize("seed", range(60))
def test_dropping_keeps_every_named_variable_of_random_programs(seed: int) -> None:
    function = random_program(seed)
    graph = function.trace().graph
    wanted, _ = ran(function, {"word": "w"})
    for name in graph.variables:
        state = function.compile(outputs=[name]).run(word="w", backend=echoing_backend(), seed=7)
        assert state[name] == wanted["variables"][name]


def test_an_error_is_raised_as_the_interpreted_program_raises_it() -> None:
    @sgl.function
    def f(s: Any) -> Any:
        s += "a" + sgl.gen("x") + "b"
        s += s["x"] + sgl.gen("y")
        return s["y"]

    @sgl.function
    def g(s: Any) -> None:
        forks = s.fork(2)
        forks += "a" + sgl.gen("x")
        forks.join()

    for function in (f, g):
        for run in (function.run, function.compile().run):
            with pytest.raises(GenerationError, match="no network") as caught:
                run(backend=sgl.ScriptedBackend(ValueError("no network")))
            assert caught.value.variable == "x"
            assert isinstance(caught.value.__cause__, ValueError)
            assert "test_compile.py" in str(caught.value.location)


def test_a_batch_computes_what_its_items_share_first_and_starts_them_in_tree_order() -> None:
    @sgl.function
    def f(s: Any, place: str, question: str = "Why?") -> None:
        s += "Look at the map.\n" + place + "\n" + question + sgl.gen("answer")

    items = [{"place": place} for place in ("b2", "a1", "b1", "a2")]
    backend, plain = echoing_backend(), echoing_backend()
    states = f.compile().run_batch(items, backend=backend, num_threads=1, seed=3)
    wanted = f.run_batch(items, backend=plain, num_threads=1, seed=3)
    assert [seen(state) for state in states] == [seen(state) for state in wanted]
    assert made(backend) == made(plain)
    kinds = [(call.kind, call.text) for call in backend.calls]
    assert kinds[0] == ("prefill", "Look at the map.\n")
    assert [text.split("\n")[1] for kind, text in kinds[1:]] == ["a1", "a2", "b1", "b2"]


def test_a_batch_as_an_iterator_is_ordered_within_its_windows() -> None:
    @sgl.function
    def f(s: Any, number: str) -> None:
        s += "n" + number + sgl.gen("x")

    items = [{"number": f"{(i * 7919) % 1000:03}"} for i in range(450)]
    found = list(f.compile().run_batch(items, backend=echoing_backend(), generator_style=True))
    assert [state.text()[1:4] for state in found] == [item["number"] for item in items]


def test_tree_order_computes_no_more_than_any_other_order() -> None:
    def cost(texts: list[str]) -> int:  # a cache that holds the last prompt alone
        total, last = 0, ""
        for text in texts:
            total += len(text) - len(common_start([text, last]))
            last = text
        return total

    graph = few.trace().graph
    words = ["ab", "cb", "aa", "ca", "ab", "b", ""]
    beginnings = [beginning(graph, {"word": word}) for word in words]
    order = batch_order(beginnings, len(words))
    prompts = [f"Say {word}." for word in words]
    distinct = {prompt[: i + 1] for prompt in prompts for i in range(len(prompt))}
    assert cost([prompts[i] for i in order]) == len(distinct)  # the optimum: each prefix once
    assert sorted(order) == list(range(len(words)))
    assert sorted(batch_order(beginnings, 3)[:3]) == [0, 1, 2]


@sgl.function
def few(s: Any, word: str) -> None:
    s += "Say " + word + "." + sgl.gen("x")


def test_a_start_order_that_is_no_order_is_refused() -> None:
    with pytest.raises(UserInputError, match=r"start_order has 2 numbers; each of the 2 items"):
        few.run_batch([{"word": "a"}, {"word": "b"}], backend=echoing_backend(), start_order=[0, 0])


def test_compiled_items_are_checked_as_those_of_programs_are() -> None:
    compiled = few.compile()
    with pytest.raises(TypeError, match="item 1 of the batch"):
        compiled.run_batch([{"word": "a"}, {"wrong": "b"}], backend=echoing_backend())
    with pytest.raises(TypeError, match="missing"):
        compiled.run(backend=echoing_backend())
    assert compiled.run_batch([], backend=echoing_backend()) == []


def test_a_program_of_which_a_part_can_be_traced_uses_that_part() -> None:
    @sgl.function
    def f(s: Any, question: str) -> Any:
        s += "Think first.\n" + question + sgl.gen("thought")
        if "<" in s["thought"]:
            s += "Then" + sgl.gen("rest")
        return s["thought"]

    with pytest.raises(TraceError, match=r"looks into variable 'thought'") as caught:
        f.compile()
    assert isinstance(caught.value.graph, Graph)
    assert [node.variable for node in caught.value.graph.calls] == ["thought"]
    compiled = f.compile(partial=True)
    backend, plain = echoing_backend(), echoing_backend()
    items = [{"question": q} for q in "ba"]
    states = compiled.run_batch(items, backend=backend, num_threads=1, seed=2)
    wanted = f.run_batch(items, backend=plain, num_threads=1, seed=2)
    assert [seen(state) for state in states] == [seen(state) for state in wanted]
    assert backend.calls[0].text == "Think first.\n"
    assert next(call.text[-1] for call in backend.calls if call.kind == "generate") == "a"
    assert "could be traced" in compiled.explain()


def test_suggestions_count_what_they_would_save_and_change_nothing() -> None:
    @sgl.function
    def f(s: Any, document: str, question: str) -> None:
        s += "Read.\n" + document + "\nAnswer in one short sentence, in English.\n"
        s += "Q: " + question + "\nA:" + sgl.gen("a")

    def words(text: str) -> int:
        return len(text.split())

    compiled = f.compile()
    batch = [{"document": f"text {i}", "question": "one question here"} for i in range(4)]
    found = compiled.suggest(batch, words)
    first = found[0]
    assert first.computed_tokens == 1 + 4 * (2 + 8 + 3 + 1)
    assert "order [Argument(question), Argument(document)]" in first.message
    assert first.saved_tokens == first.computed_tokens - (1 + 3 + 8 + 4 * 3)
    moves = [item for item in found if "move the constant" in item.message]
    assert "Answer in one short sentence" in moves[0].message
    assert moves[0].saved_tokens == 3 * 8
    assert "test_compile.py" in moves[0].message
    assert compiled.suggest([batch[0]], words) == []
    with pytest.raises(UserInputError, match="item 0 of the batch lacks question"):
        compiled.suggest([{"document": "d"}], words)


def test_graphs_without_a_json_form_say_why() -> None:
    @sgl.function
    def typed(s: Any) -> None:
        s += "x" + sgl.gen("x", json_schema=list[int])

    def method(**scores: Any) -> Any:
        return None

    @sgl.function
    def chosen(s: Any) -> None:
        s += "x" + sgl.select("x", ["a", "b"], choices_method=method)

    with pytest.raises(UserInputError, match="Python type as its json_schema"):
        typed.compile().to_json()
    with pytest.raises(UserInputError, match=r"choices_method .*no JSON form"):
        chosen.compile().to_json()
    for wrong in ({}, {"version": 1}, {"version": 1, "nodes": [3]}, 7):
        with pytest.raises(UserInputError, match="the graph"):
            graph_from_json(wrong)  # type: ignore[arg-type]


def test_explain_says_what_was_done_in_tokens() -> None:
    shown = story.compile(outputs=["end"]).explain(len)
    assert "3 calls of 7" in shown
    assert "drop dead generations: " in shown
    assert "saves 4 tokens" in shown
    assert "nothing to change" in few.compile().explain()


def test_a_program_that_runs_another_gives_it_the_same_keys_when_compiled() -> None:
    @sgl.function
    def f(s: Any) -> None:
        s += inner("a")["seen"] + inner("b")["seen"] + sgl.gen("x")

    plain, compiled = echoing_backend(), echoing_backend()
    f.run(backend=plain).sync()
    f.compile().run(backend=compiled).sync()
    assert made(plain) == made(compiled)
