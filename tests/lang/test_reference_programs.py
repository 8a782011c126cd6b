"""The reference's test programs on a scripted backend; upstream_programs.py has the programs.

Those whose results need no knowledge run on the real model too (tests/programs).
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.lang import upstream_programs as programs

import espalier as sgl
from espalier.backends.scripted import ScriptedCall
from espalier.errors import SamplingError, UnsupportedError
from espalier.lang.choices import ChoicesMethod
from espalier.utils import read_jsonl


def test_few_shot_questions_one_by_one_and_in_a_batch() -> None:
    capitals = {"Japan?\nA:": " Tokyo\nQ:", "Peru?\nA:": " Lima\nQ:", "Kenya?\nA:": " Nairobi\nQ:"}
    sgl.set_default_backend(sgl.ScriptedBackend(capitals))
    state = programs.few_shot_qa.run(question="What is the capital of Japan?")
    assert state["answer"].strip().lower() == "tokyo"
    rets = programs.few_shot_qa.run_batch(
        [{"question": f"What is the capital of {place}?"} for place in ("Peru", "Kenya", "Japan")],
        temperature=0.1,
    )
    assert [ret["answer"].strip() for ret in rets] == ["Lima", "Nairobi", "Tokyo"]


def test_a_chat_of_two_turns_in_both_role_styles() -> None:
    backend = sgl.ScriptedBackend("fine")
    state = programs.answer_two.run(
        question_1="Write a plan.",
        question_2="Shorten it.",
        temperature=0.7,
        max_new_tokens=64,
        backend=backend,
    )
    assert len(state.messages()) in (4, 5)
    assert state.messages()[-1] == {"role": "assistant", "content": "fine"}
    sampling = [call.sampling for call in backend.calls]
    assert all(item and (item.max_new_tokens, item.temperature) == (64, 0.7) for item in sampling)


def test_a_statement_is_judged_by_select() -> None:
    backend = sgl.ScriptedBackend(programs.STATEMENTS)
    for statement, answer in programs.STATEMENTS.items():
        state = programs.true_or_false.run(statement=statement, backend=backend)
        assert state["answer"] == answer


def test_numbers_are_decoded_by_gen_int() -> None:
    script = {"day has ": "24 hours", "year has ": "365 d"}
    state = programs.decode_int.run(temperature=0.1, backend=sgl.ScriptedBackend(script))
    assert (int(state["hours"]), int(state["days"])) == (24, 365)


def test_json_is_decoded_in_pieces_by_regexes() -> None:
    script = {
        '"name": ': '"Oslo"',
        "population": "700000 people",
        "area": "454\nkm",
        "latitude": "59.9 north",
    }
    backend = sgl.ScriptedBackend(script)
    state = programs.decode_json_by_regex.run(temperature=0.0, backend=backend)
    found = json.loads(state["json_output"])
    assert found == {"name": "Oslo", "population": 700000, "area": 454, "latitude": 59.9}
    assert all(call.constraint for call in backend.calls)


def test_json_is_decoded_in_pieces_by_types() -> None:
    script = {
        '"name": ': '"Oslo"',
        "population": "700000 people",
        "area": "454 km",
        "country": '"Norway"',
        "timezone": '"CET"',
    }
    state = programs.decode_json.run(max_new_tokens=64, backend=sgl.ScriptedBackend(script))
    found = json.loads(state["json_output"])
    wanted = {"name": "Oslo", "population": 700000, "area": 454}
    assert found == {**wanted, "country": "Norway", "timezone": "CET"}


def test_a_variable_is_used_inside_a_later_expression() -> None:
    state = programs.expert_answer.run(
        question="What is the capital of France?",
        temperature=0.1,
        backend=sgl.ScriptedBackend({"to answer is": " a guide.", "I say:": " It is Paris. So"}),
    )
    assert state.text().endswith("As a guide I say: It is Paris.")


def test_a_tool_runs_between_calls_by_calling_the_function() -> None:
    sgl.set_default_backend(sgl.ScriptedBackend({"is calculate(": "257*983) = ?"}))
    state = programs.tool_use(lhs=257, rhs=983, temperature=0)
    assert int(state["answer"]) == 257 * 983
    assert state.text().endswith("calculate(257*983) = 252631")


def test_an_agent_loops_with_unnamed_gens_and_branches_on_a_choice() -> None:
    def answer(call: ScriptedCall) -> str:
        if call.kind == "score":
            return "Finish" if "Action 3" in call.text else "Search"
        last = call.text.splitlines()[-1]
        return "Finland] or" if last.startswith("Action 3") else " hm. Action"

    state = programs.react.run("Where is it cold?", backend=sgl.ScriptedBackend(answer))
    assert "finland" in state["answer"].lower()
    asked = state.text().split("Question: Where is it cold?")[1]
    assert (asked.count("Observation"), asked.count("Thought")) == (2, 3)
    assert [state[f"action_{turn}"] for turn in (1, 2, 3)] == ["Search", "Search", "Finish"]
    assert "action_4" not in state


def test_parallel_decoding_expands_an_outline() -> None:
    def answer(call: ScriptedCall) -> str:
        return f" [{call.text.splitlines()[-1]}]\n\n"

    backend = sgl.ScriptedBackend(answer, latency_s=(0, 0.005))
    state = programs.parallel_decoding.run(topic="tea", temperature=0.3, backend=backend)
    assert isinstance(state["summary"], str)
    assert "Tip 4: [Tip 4:]" in state.text()
    assert [tip.strip() for tip in state["detailed_tip"]][2] == "[Tip 3:]"


def test_parallel_encoding_appends_contexts_in_order() -> None:
    contexts = {f"context_{index}": text for index, text in enumerate(programs.CONTEXTS)}
    state = programs.parallel_encoding.run(
        question="Who? ", **contexts, backend=sgl.ScriptedBackend("It is Noah."), temperature=0
    )
    text = state.text()
    assert "Noah" in state["answer"]
    assert (
        text.index("Statement 0") < text.index("Statement 1: My name") < text.index("Statement 2")
    )


def test_an_image_is_refused_where_it_is_written() -> None:
    with pytest.raises(UnsupportedError, match="example_image"):
        programs.image_qa.run(question="What is it?", backend=sgl.ScriptedBackend())


def test_streaming_gives_the_text_and_a_variable() -> None:
    backend = sgl.ScriptedBackend("It is in the north", latency_s=0.01)
    state = programs.qa(question="Where?", stream=True, backend=backend)
    assert "".join(state.text_iter()).endswith("It is in the north\n")
    state = programs.qa(question="Where?", stream=True, backend=backend)
    assert "".join(state.text_iter("answer")) == "It is in the north"


def test_a_regex_is_asked_for() -> None:
    backend = sgl.ScriptedBackend("10.0.0.1")
    state = programs.regex_gen.run(backend=backend)
    assert re.match(programs.IP_ADDRESS, state["answer"])
    assert backend.calls[0].constraint is not None
    assert backend.calls[0].constraint.text == programs.IP_ADDRESS


def test_each_dtype_can_be_cast_and_a_variable_can_be_set() -> None:
    script = {
        "mean?\nA: ": '"a name"',
        "begin?\nA: ": "1983 or so",
        "pi?\nA: ": "3.14\n",
        "blue?\nA: ": "True",
    }
    state = programs.dtype_gen.run(backend=sgl.ScriptedBackend(script))
    state["int_res"] = int(state["int_res"])
    state["float_res"] = float(state["float_res"])
    state["bool_res"] = bool(state["bool_res"])
    assert (state["int_res"], state["float_res"], state["bool_res"]) == (1983, 3.14, True)
    assert json.loads(state["str_res"]) == "a name"


@pytest.mark.parametrize("program", [programs.character, programs.character_in_chat])
def test_programs_with_a_hint_for_speculation_give_what_they_give_without(program: Any) -> None:
    # That a service is asked for fewer tokens is for the backends that call one.
    script = {"Name:": " Bo Ray.\nBirthday", "Birthday:": " 3 June.\nJob", "Job:": " Cook.\n"}
    state = program.run(backend=sgl.ScriptedBackend(script))
    state.sync()
    assert [state[name] for name in ("name", "birthday", "job")] == [
        " Bo Ray.",
        " 3 June.",
        " Cook.",
    ]
    plain = sgl.function(program.func).run(backend=sgl.ScriptedBackend(script))
    assert plain.text() == state.text()


def endings(count: int, path: Path | None = None) -> list[Any]:
    """Rows of the endings bench: from a file, else made up."""
    if path is not None:
        return list(read_jsonl(path))[:count]
    return [
        {
            "activity_label": "Baking",
            "ctx": f"Loaf number {index} is kneaded, and then it",
            "endings": [f"rests {index} hours.", "flies away.", "sings.", "is a car."],
            "label": index % 4,
        }
        for index in range(count)
    ]


def test_a_bench_of_endings_runs_on_many_threads_with_a_bar(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in endings(200)), encoding="utf-8")
    lines = endings(200, path)
    right = {programs.example_of(line, False): line for line in lines}

    def answer(call: ScriptedCall) -> str:
        line = right[call.text.rpartition("\n\n")[2]]
        label = line["label"] if "1 is kneaded" not in line["ctx"] else (line["label"] + 1) % 4
        return str(line["endings"][label])

    arguments = [
        {"question": programs.example_of(line, False), "choices": line["endings"]} for line in lines
    ]
    started = time.perf_counter()
    rets = programs.endings_program(lines, 20).run_batch(
        arguments,
        temperature=0,
        num_threads=64,
        progress_bar=True,
        backend=sgl.ScriptedBackend(answer, latency_s=(0, 0.002)),
    )
    latency_s = time.perf_counter() - started
    predicted = [
        line["endings"].index(ret["answer"]) for line, ret in zip(lines, rets, strict=True)
    ]
    accuracy = sum(p == line["label"] for p, line in zip(predicted, lines, strict=True)) / 200
    assert accuracy == 1 - 20 / 200
    assert latency_s > 0
    assert "200" in capfd.readouterr().err


def test_min_tokens_reach_the_backend() -> None:
    backend = sgl.ScriptedBackend()
    programs.long_answer.run(backend=backend).sync()
    assert backend.calls[0].sampling is not None
    assert backend.calls[0].sampling.min_new_tokens == 64
    # A number ends where it is whole: that it is long cannot be asked for.
    numbers = sgl.function(lambda s: s.__iadd__("n: " + sgl.gen("x", dtype=int, min_tokens=64)))
    with pytest.raises(SamplingError, match="min_new_tokens is 64 for a number"):
        numbers.run(backend=backend)
    with pytest.raises(TypeError, match="min_tokens"):
        sgl.gen_int("x", min_tokens=64)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "method",
    [
        sgl.token_length_normalized,
        sgl.greedy_token_selection,
        sgl.unconditional_likelihood_normalized,
    ],
)
def test_choices_methods_are_given_by_their_public_names(method: ChoicesMethod) -> None:
    @sgl.function
    def pick(s):  # type: ignore[no-untyped-def]
        s += "pick:" + sgl.gen("x", choices=["a", "b"], choices_method=method)

    assert pick.run(backend=sgl.ScriptedBackend("b"))["x"] == "b"


def test_bind_then_run() -> None:
    @sgl.function
    def greet(s, name, greeting):  # type: ignore[no-untyped-def]
        s += f"{greeting}, {name}!" + sgl.gen("reply")

    hello = greet.bind(greeting="Hello")
    assert hello.run(name="Ann", backend=sgl.ScriptedBackend("?")).text() == "Hello, Ann!?"
