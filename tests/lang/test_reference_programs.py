"""The shapes of program that the reference's own tests run, written for its names alone.

They import the package under the reference's customary alias, so that a program of such a shape is
known to run with only its import line changed.
"""

from __future__ import annotations

import json

import pytest

import espalier as sgl
from espalier.backends.scripted import ScriptedCall
from espalier.lang.choices import ChoicesMethod


def test_few_shot_questions_one_by_one_and_in_a_batch() -> None:
    @sgl.function
    def few_shot_qa(s, question):  # type: ignore[no-untyped-def]
        s += "The following are questions with answers.\n\n"
        s += "Q: What is the capital of Portugal?\nA: Lisbon\n"
        s += "Q: " + question + "\n"
        s += "A:" + sgl.gen("answer", stop="\n", temperature=0)

    capitals = {"Japan?\nA:": " Tokyo\nQ:", "Peru?\nA:": " Lima\nQ:", "Kenya?\nA:": " Nairobi\nQ:"}
    sgl.set_default_backend(sgl.ScriptedBackend(capitals))
    state = few_shot_qa.run(question="What is the capital of Japan?")
    assert state["answer"].strip() == "Tokyo"
    rets = few_shot_qa.run_batch(
        [{"question": f"What is the capital of {place}?"} for place in ("Peru", "Kenya", "Japan")],
        temperature=0.1,
    )
    assert [ret["answer"].strip() for ret in rets] == ["Lima", "Nairobi", "Tokyo"]


def test_a_chat_of_two_turns_in_both_role_styles() -> None:
    @sgl.function
    def answer_two(s, question_1, question_2):  # type: ignore[no-untyped-def]
        s += sgl.system("You are a careful assistant.")
        s += sgl.user(question_1)
        s += sgl.assistant(sgl.gen("answer_1"))
        with s.user():
            s += question_2
        with s.assistant():
            s += sgl.gen("answer_2")

    backend = sgl.ScriptedBackend("fine")
    state = answer_two.run(
        question_1="Write a plan.",
        question_2="Shorten it.",
        temperature=0.7,
        max_new_tokens=64,
        backend=backend,
    )
    assert len(state.messages()) in (4, 5)
    assert state.messages()[-1] == {"role": "assistant", "content": "fine"}
    assert all(c.sampling and c.sampling.max_new_tokens == 64 for c in backend.calls)


def test_a_statement_is_judged_by_select() -> None:
    @sgl.function
    def true_or_false(s, statement):  # type: ignore[no-untyped-def]
        s += "Decide whether the statement is true.\n"
        s += "Statement: " + statement + "\nAnswer:"
        s += sgl.select("answer", ["True", "False", "Unknown"])

    answers = {
        "Rome is in Italy.": "True",
        "Rome is in Chile.": "False",
        "My cat is in.": "Unknown",
    }
    backend = sgl.ScriptedBackend(answers)
    for statement, answer in answers.items():
        assert true_or_false.run(statement=statement, backend=backend)["answer"] == answer


def test_numbers_are_decoded_by_gen_int() -> None:
    @sgl.function
    def decode_int(s):  # type: ignore[no-untyped-def]
        s += "A day has " + sgl.gen_int("hours") + " hours.\n"
        s += "A year has " + sgl.gen_int("days") + " days.\n"

    state = decode_int.run(
        temperature=0.1, backend=sgl.ScriptedBackend({"day has ": "24 hours", "year has ": "365 d"})
    )
    assert (int(state["hours"]), int(state["days"])) == (24, 365)


def test_json_is_decoded_in_pieces() -> None:
    @sgl.function
    def decode_json(s):  # type: ignore[no-untyped-def]
        s += "Describe a city in JSON.\n"
        with s.var_scope("json_output"):
            s += "{\n"
            s += '  "name": ' + sgl.gen_string() + ",\n"
            s += '  "population": ' + sgl.gen_int() + ",\n"
            s += '  "area": ' + sgl.gen(dtype=int) + ",\n"
            s += '  "country": ' + sgl.gen(dtype=str) + "\n"
            s += "}"

    script = {
        '"name": ': '"Oslo"',
        "population": "700000 people",
        "area": "454 km",
        "country": '"Norway"',
    }
    state = decode_json.run(max_new_tokens=64, backend=sgl.ScriptedBackend(script))
    found = json.loads(state["json_output"])
    assert found == {"name": "Oslo", "population": 700000, "area": 454, "country": "Norway"}


def test_a_variable_is_used_inside_a_later_expression() -> None:
    @sgl.function
    def expert_answer(s, question):  # type: ignore[no-untyped-def]
        s += "Question: " + question + "\n"
        s += "A good person to answer is" + sgl.gen("expert", stop=[".", "\n"]) + ".\n"
        s += "As" + s["expert"] + " I say:" + sgl.gen("answer", stop=".") + "."

    state = expert_answer.run(
        question="What is the capital of France?",
        backend=sgl.ScriptedBackend({"to answer is": " a guide.", "I say:": " It is Paris. So"}),
    )
    assert state.text().endswith("As a guide I say: It is Paris.")


def test_a_tool_runs_between_calls_by_calling_the_function() -> None:
    def calculate(expression: str) -> str:
        left, right = expression.strip().split("*")
        return str(int(left) * int(right))

    @sgl.function
    def tool_use(s, left, right):  # type: ignore[no-untyped-def]
        s += f"What is {left} times {right}?\n"
        s += "Expression:" + sgl.gen("expression", stop="\n") + "\n"
        with s.var_scope("answer"):
            s += calculate(s["expression"])

    sgl.set_default_backend(sgl.ScriptedBackend({"Expression:": " 257 * 983\nmore"}))
    assert tool_use(257, 983)["answer"] == "252631"


def test_an_agent_loops_with_unnamed_gens_and_branches_on_a_choice() -> None:
    @sgl.function
    def agent(s, question):  # type: ignore[no-untyped-def]
        s += "Question: " + question + "\n"
        for turn in range(1, 5):
            s += f"Thought {turn}:" + sgl.gen(stop=["Action", "Observation"])
            s += f"Action {turn}:" + sgl.select("action", ["search", "finish"])
            if s["action"] == "finish":
                s += " [" + sgl.gen("answer", stop="]") + "]"
                break
            s += " [" + sgl.gen(stop="]") + "]\n"
            s += f"Observation {turn}: a page.\n"

    def answer(call: ScriptedCall) -> str:
        if call.kind == "score":
            return "finish" if "Action 3" in call.text else "search"
        return "Finland]" if call.text.endswith("[") else " hm Action"

    state = agent.run("Where is it cold?", backend=sgl.ScriptedBackend(answer))
    assert state["answer"] == "Finland"
    assert state.text().count("Observation") == 2


def test_parallel_decoding_expands_an_outline() -> None:
    number = 5

    @sgl.function
    def tips(s, topic):  # type: ignore[no-untyped-def]
        s += "List tips about " + topic + ".\n"
        for index in range(number):
            s += f"{index + 1}." + sgl.gen("tip", stop=[".", "\n"]) + "\n"
        forks = s.fork(number)
        for index in range(number):
            forks[index] += f"\nExplain tip {index + 1}:"
            forks[index] += sgl.gen("detailed_tip", stop=["\n\n"])
        forks.join()
        s += "\n\nAll tips in detail:\n"
        for index in range(number):
            s += f"Tip {index + 1}: " + forks[index]["detailed_tip"] + "\n"
        s += "In summary:" + sgl.gen("summary")

    def answer(call: ScriptedCall) -> str:
        return f" [{call.text.splitlines()[-1]}]\n\n"

    state = tips.run(topic="tea", backend=sgl.ScriptedBackend(answer, latency_s=(0, 0.005)))
    assert isinstance(state["summary"], str)
    assert "Tip 4:  [Explain tip 4:]" in state.text()
    assert [tip.strip() for tip in state["detailed_tip"]][2] == "[Explain tip 3:]"


def test_parallel_encoding_appends_contexts_in_order() -> None:
    contexts = ["I went to the sea.", "My name is Noah.", "My dog is old."]

    @sgl.function
    def encode(s, question):  # type: ignore[no-untyped-def]
        s += "USER: some messages follow.\n"
        forks = s.fork(len(contexts))
        forks += lambda index: f"({index}) " + contexts[index] + "\n"
        forks.join(mode="concate_and_append")
        s += "ASSISTANT: " + question + sgl.gen("answer", stop=".")

    state = encode.run("Who? ", backend=sgl.ScriptedBackend("It is Noah. Bye"), max_new_tokens=16)
    text = state.text()
    assert state["answer"] == "It is Noah"
    assert text.index("(0)") < text.index("(1) My name is Noah.") < text.index("(2)")


def test_streaming_gives_the_text_and_a_variable() -> None:
    @sgl.function
    def qa(s, question):  # type: ignore[no-untyped-def]
        s += sgl.system("You are helpful.")
        s += sgl.user(question)
        s += sgl.assistant(sgl.gen("answer"))

    backend = sgl.ScriptedBackend("It is in the north", latency_s=0.01)
    state = qa(question="Where?", stream=True, backend=backend)
    assert "".join(state.text_iter()).endswith("It is in the north\n")
    state = qa(question="Where?", stream=True, backend=backend)
    assert "".join(state.text_iter("answer")) == "It is in the north"


def test_each_dtype_can_be_cast_and_a_variable_can_be_set() -> None:
    @sgl.function
    def dtypes(s):  # type: ignore[no-untyped-def]
        s += "Some values.\n"
        s += "word: " + sgl.gen("word", dtype=str, max_tokens=32, stop="\n") + "\n"
        s += "count: " + sgl.gen("count", dtype=int, max_tokens=32, stop="\n") + "\n"
        s += "share: " + sgl.gen("share", dtype=float, max_tokens=32, stop="\n") + "\n"
        s += "is so: " + sgl.gen("is_so", dtype=bool, max_tokens=32, stop="\n") + "\n"
        s["word"] = json.loads(s["word"])
        s["count"] = int(s["count"])

    script = {"word: ": '"tea"', "count: ": "12\n", "share: ": "0.5\n", "is so: ": "True"}
    state = dtypes.run(backend=sgl.ScriptedBackend(script))
    assert (state["word"], state["count"]) == ("tea", 12)
    assert float(state["share"]) == 0.5
    assert state["is_so"] in ("True", "False")


def test_a_bench_of_choices_runs_on_many_threads_with_a_bar() -> None:
    shots = "".join(f"Q{index}: end with {index % 4}\nA: e{index % 4}\n\n" for index in range(20))

    @sgl.function
    def hellaswag(s, question, choices):  # type: ignore[no-untyped-def]
        s += shots + question
        s += sgl.select("answer", choices=choices)

    questions = [
        {"question": f"Q: end with {index % 4}\nA: ", "choices": [f"e{k}" for k in range(4)]}
        for index in range(60)
    ]

    def answer(call: ScriptedCall) -> str:
        return "e" + call.text[-5]

    rets = hellaswag.run_batch(
        questions,
        temperature=0,
        num_threads=64,
        progress_bar=True,
        backend=sgl.ScriptedBackend(answer, latency_s=(0, 0.002)),
    )
    assert [ret["answer"] for ret in rets] == [f"e{index % 4}" for index in range(60)]


def test_min_tokens_reach_the_backend() -> None:
    @sgl.function
    def long(s):  # type: ignore[no-untyped-def]
        s += "A story:" + sgl.gen("story", min_tokens=64)

    backend = sgl.ScriptedBackend()
    long.run(max_new_tokens=128, backend=backend).sync()
    assert backend.calls[0].sampling is not None
    assert backend.calls[0].sampling.min_new_tokens == 64


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
