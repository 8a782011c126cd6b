"""The reference's benchmark programs on a scripted backend, with local data where it is there."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lang import benchmark_programs as programs

import espalier as sgl
from espalier.backends.scripted import ScriptedCall
from espalier.errors import UnsupportedError
from espalier.utils import read_jsonl

DATA = Path(os.environ.get("ESPALIER_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
MADE_UP: dict[str, list[Any]] = {
    "gsm8k/test_first200.jsonl": [
        {"question": f"What is {n} plus {n}?", "answer": f"It doubles.\n#### {2 * n}"}
        for n in range(12)
    ],
    "mt_bench/question.jsonl": [
        {"turns": [f"Write a letter about {word}.", "Make it shorter."]} for word in ("tea", "rain")
    ],
    "llm_judge/articles.jsonl": [f"Article {n}. It says little." for n in range(4)],
    "tip_suggestion/topic.jsonl": [{"topic": "keeping bees", "number": 3}] * 3,
    "react/hotpotqa_100.jsonl": [
        {"Question: Who?": [{"thought": "Hm.", "action": "Search[x]", "observation": "y"}] * 3}
    ],
}


def rows(name: str, count: int) -> list[Any]:
    """The first rows of a data file, or rows made up in its form."""
    path = DATA / name
    return (list(read_jsonl(path)) if path.is_file() else MADE_UP[name])[:count]


def report(program: Any, arguments: list[Any], backend: Any, **options: Any) -> tuple[Any, Any]:
    """Runs a batch as the benchmarks do; the states, and what a report shows."""
    started = time.perf_counter()
    with sgl.record_usage() as log:
        states = program.run_batch(arguments, backend=backend, num_threads=64, **options)
    assert time.perf_counter() > started
    assert log.programs >= len(arguments)
    assert 0 <= log.usage.hit_rate <= 1
    return states, log


def test_mmlu() -> None:
    examples = "What is 1 + 1?\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer: B\n\n" * 5
    questions = [f"What is {n} + 0?\nA. 0\nB. 1\nC. 2\nD. 3\nAnswer:" for n in range(4)]

    def answer(call: ScriptedCall) -> str:
        return " " + "ABCD"[int(call.text.rpartition("What is ")[2][0])] + " because"

    states, _ = report(
        programs.few_shot_mmlu,
        [{"examples": examples, "question": question} for question in questions],
        sgl.ScriptedBackend(answer),
        temperature=0,
    )
    predicted = [state["answer"].strip()[0] for state in states]
    assert predicted == list("ABCD")


def test_gsm8k() -> None:
    lines = rows("gsm8k/test_first200.jsonl", 12)
    shots = "".join(f"Question: {r['question']}\nAnswer: {r['answer']}\n\n" for r in lines[:5])
    labels = {line["question"]: line["answer"].rpartition("#### ")[2] for line in lines}

    def answer(call: ScriptedCall) -> str:
        question = call.text.rpartition("Question: ")[2].removesuffix("\nAnswer:")
        return f" By counting, #### {labels[question]}\n\nQuestion: next"

    states, _ = report(
        programs.few_shot_gsm8k,
        [{"examples": shots, "question": f"Question: {q}\nAnswer:"} for q in labels],
        sgl.ScriptedBackend(answer),
        temperature=0,
    )
    found = [re.findall(r"-?[\d,.]+", state["answer"])[-1] for state in states]
    assert found == list(labels.values())


def test_generative_agents() -> None:
    events = [{"persona": "Isa", "event": f"event {n}"} for n in range(5)]
    states, _ = report(programs.poignancy_of_event, events, sgl.ScriptedBackend(" 7 of 10"))
    assert [int(state["Rating"].split()[0]) for state in states] == [7] * 5
    state = programs.next_place.run("Isa", ["bar", "park"], backend=sgl.ScriptedBackend("park} or"))
    assert state.text().endswith("is {park}")


@pytest.mark.parametrize("seed", [0, 1])
def test_tree_of_thought(seed: int) -> None:
    backend = sgl.ScriptedBackend(
        lambda call: f" {len(call.text)}", latency_s=(0, 0.003), seed=seed
    )
    state = programs.tree_search.run("What is 2 + 2?", 2, backend=backend)
    leaves = state.ret_value
    assert [len(leaf["score"]) > 0 for leaf in leaves] == [True] * 8
    for leaf in leaves:
        assert [m["role"] for m in leaf.messages()][0::2] == ["system"] + ["assistant"] * 3
    assert Counter(call.kind for call in backend.calls)["generate"] == 2 + 4 + 8


def test_tree_of_thought_deep() -> None:
    backend = sgl.ScriptedBackend(" 4")
    state = programs.deep_tree_search.run("What is 2 + 2?", 2, backend=backend)
    answers = [answer.strip() for answer in state.ret_value]
    assert Counter(answers).most_common(1) == [("4", 8)]
    assert state.usage().calls == 2 + 4 + 8 + 8


def test_tip_suggestion() -> None:
    topics = rows("tip_suggestion/topic.jsonl", 5)

    def answer(call: ScriptedCall) -> str:
        if call.text.endswith("1."):
            number = int(call.text.split("\n")[1].split()[0])
            return " tip 1\n" + "\n".join(f"{n}. tip {n}" for n in range(2, number + 1)) + "<end>"
        return f" All about {call.text.rpartition('Tip: ')[2].splitlines()[0]}.\n\nMore"

    states, log = report(programs.suggest_tips, topics, sgl.ScriptedBackend(answer))
    for row, state in zip(topics, states, strict=True):
        last = row["number"]
        assert state.text().endswith(f"Tip {last}: tip {last}\n All about tip {last}.\n")
    assert log.programs == len(topics) + sum(row["number"] for row in topics)


def test_llm_judge() -> None:
    articles = [{"article": text} for text in rows("llm_judge/articles.jsonl", 4)]

    def answer(call: ScriptedCall) -> str:
        return "8" if call.text.endswith("grade: ") else f"{len(call.text) % 10} of 10 END"

    states, _ = report(programs.multi_dimensional_judge, articles, sgl.ScriptedBackend(answer))
    for state in states:
        assert len(state["judgment"]) == len(programs.DIMENSIONS)
        assert state["final_score"] == "8"
        positions = [state.text().index(f"{dimension}: ") for dimension in programs.DIMENSIONS]
        assert positions == sorted(positions)


def test_json_jump_forward_and_json_decode_regex() -> None:
    form = (
        '{\n    "name": "Ann",\n    "house": "North",\n    "alive": true,\n    "wand": {\n'
        '        "length": 9.75\n    }\n}'
    )
    assert re.fullmatch(programs.CHARACTER, form)
    backend = sgl.ScriptedBackend(form)
    state = programs.json_by_one_regex.run("Ann", backend=backend)
    assert json.loads(state["json_output"])["wand"] == {"length": 9.75}
    assert backend.calls[0].constraint is not None
    script = {'"name": ': '"Tower",', '"rooms": ': "12,", '"height": ': "88.5"}
    state = programs.json_by_pieces.run("A tower.", backend=sgl.ScriptedBackend(script))
    assert json.loads(state["json_output"]) == {"name": "Tower", "rooms": 12, "height": 88.5}


def test_long_json_decode() -> None:
    script = {
        '"name": "': 'Oslo",',
        '"country": "': 'Norway",',
        '"river": "': 'Aker",',
        '"mayor": "': 'Anne",',
        '"latitude": ': "59.9\n}",
    }
    state = programs.long_json_by_stops.run("A city.", backend=sgl.ScriptedBackend(script))
    assert json.loads(state["json_output"])["latitude"] == 59.9
    assert state["river"] == "Aker"


def test_multi_turn_chat() -> None:
    chats = [
        {"qas": [{"prompt": f"turn {turn} ", "new_tokens": 3 + turn} for turn in range(4)]}
    ] * 3
    backend = sgl.ScriptedBackend("word " * 20)
    states, log = report(programs.multi_turns, chats, backend)
    assert log.usage.generated_tokens == 3 * (3 + 4 + 5 + 6)
    assert all(call.sampling and call.sampling.ignore_eos for call in backend.calls)
    # Each turn goes on from the tokens of the turns before it.
    last = max(backend.calls, key=lambda call: len(call.text))
    assert sum(hasattr(segment, "token_ids") for segment in last.prompt) == 3
    assert states[0].text().startswith("turn 0 word word wordturn 1 ")


def test_multi_chain_reasoning() -> None:
    def answer(call: ScriptedCall) -> str:
        if call.text.endswith("answer is"):
            return " 42"
        return f" {call.text.rpartition('Way ')[2][0]} leads to 42. Question"

    state = programs.multi_chain.run("What?", backend=sgl.ScriptedBackend(answer))
    assert "Person 2:1 leads to 42.\n" in state.text()
    assert state["answer"] == " 42"


def test_multi_document_qa_and_line_retrieval() -> None:
    documents = ["The cat is black.", "The dog is old.", "The bird sings."]

    def read(call: ScriptedCall) -> str:
        assert [call.text.index(f"[{n}] {text}") for n, text in enumerate(documents)]
        return " old"

    state = programs.multi_document_qa.run(
        documents, "How is the dog?", backend=sgl.ScriptedBackend(read)
    )
    assert [message["role"] for message in state.messages()] == ["user", "assistant"]
    assert state.messages()[1]["content"] == "Answer: old"
    lines = [f"line {n}: REGISTER_CONTENT is <{n * 7}>" for n in range(40)]
    state = programs.line_retrieval.run(
        prefix="Lines:",
        body_0="\n".join(lines[:20]),
        body_1="\n".join(lines[20:]),
        suffix="What is in line 33? It is <",
        backend=sgl.ScriptedBackend(lambda c: re.findall(r"line 33: \S+ is <(\d+)", c.text)[0]),
    )
    assert state["answer"] == "231"


def test_mtbench() -> None:
    turns = [row["turns"] for row in rows("mt_bench/question.jsonl", 8)]
    states, _ = report(programs.answer_mt_bench, turns, sgl.ScriptedBackend("An answer."))
    for (first, second), state in zip(turns, states, strict=True):
        contents = [message["content"] for message in state.messages()]
        assert contents == ["", first.lstrip(), "An answer.", second.lstrip(), "An answer."]


def test_react_replays_traces() -> None:
    traces = [next(iter(row.items())) for row in rows("react/hotpotqa_100.jsonl", 6)]
    arguments = [{"question": question, "triplets": steps} for question, steps in traces]
    states, log = report(programs.webthink, arguments, sgl.ScriptedBackend(" So\nObservation"))
    assert log.calls == sum(len(steps) for _, steps in traces)
    for (_, steps), state in zip(traces, states, strict=True):
        assert state[f"thought_{len(steps)}"] == " So"
        assert state.text().endswith(steps[-1]["observation"] + "\n")


def test_programs_with_images_are_refused_where_the_image_is_written() -> None:
    run: Callable[..., Any] = programs.image_question.run
    with pytest.raises(UnsupportedError, match="picture"):
        run("picture.jpg", "What is it?", backend=sgl.ScriptedBackend())
