"""The shapes of program that the reference's own tests run, written for its names alone.

They import the package under the reference's customary alias, so that a program of such a shape is
known to run with only its import line changed.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import re
from typing import Any

import espalier as sgl
from espalier.lang.function import SglFunction
from espalier.lang.ir import REGEX_FLOAT, REGEX_INT, REGEX_STR

STATEMENTS = {
    "Rome is in Italy.": "True",
    "Rome is in Chile.": "False",
    "My cat is in.": "Unknown",
}
NUM_TIPS = 5
IP_ADDRESS = r"((25[0-5]|2[0-4]\d|[01]?\d\d?).){3}(25[0-5]|2[0-4]\d|[01]?\d\d?)"
CONTEXTS = ["I went to the sea.", "My name is Noah.", "My dog is old."]


@sgl.function
def few_shot_qa(s, question):
    s += "The following are questions with answers.\n\n"
    s += "Q: What is the capital of Portugal?\nA: Lisbon\n"
    s += "Q: " + question + "\n"
    s += "A:" + sgl.gen("answer", stop="\n", temperature=0)


@sgl.function
def answer_two(s, question_1, question_2):
    s += sgl.system("You are a careful assistant.")
    s += sgl.user(question_1)
    s += sgl.assistant(sgl.gen("answer_1"))
    with s.user():
        s += question_2
    with s.assistant():
        s += sgl.gen("answer_2")


@sgl.function
def true_or_false(s, statement):
    s += "Decide whether the statement is true.\n"
    s += "Statement: The moon is made of cheese.\nAnswer:False\n"
    s += "Statement: " + statement + "\nAnswer:"
    s += sgl.select("answer", ["True", "False", "Unknown"])


@sgl.function
def decode_int(s):
    s += "A day has " + sgl.gen_int("hours") + " hours.\n"
    s += "A year has " + sgl.gen_int("days") + " days.\n"


@sgl.function
def decode_json_by_regex(s):
    s += "Describe the city of Oslo in JSON.\n"
    with s.var_scope("json_output"):
        s += "{\n"
        s += '  "name": ' + sgl.gen(regex=REGEX_STR) + ",\n"
        s += '  "population": ' + sgl.gen(regex=REGEX_INT, stop=[" ", "\n"]) + ",\n"
        s += '  "area": ' + sgl.gen(regex=REGEX_INT, stop=[" ", "\n"]) + ",\n"
        s += '  "latitude": ' + sgl.gen(regex=REGEX_FLOAT, stop=[" ", "\n"]) + "\n"
        s += "}"


@sgl.function
def decode_json(s):
    s += "Describe the city of Oslo in JSON.\n"
    with s.var_scope("json_output"):
        s += "{\n"
        s += '  "name": ' + sgl.gen_string() + ",\n"
        s += '  "population": ' + sgl.gen_int() + ",\n"
        s += '  "area": ' + sgl.gen(dtype=int) + ",\n"
        s += '  "country": ' + sgl.gen_string() + ",\n"
        s += '  "timezone": ' + sgl.gen(dtype=str) + "\n"
        s += "}"


@sgl.function
def expert_answer(s, question):
    s += "Question: " + question + "\n"
    s += "A good person to answer is" + sgl.gen("expert", stop=[".", "\n"]) + ".\n"
    s += "As" + s["expert"] + " I say:" + sgl.gen("answer", stop=".") + "."


def calculate(expression: str) -> str:
    """The value of a product or sum of two numbers."""
    left, sign, right = re.fullmatch(r"\s*(\d+)\s*([*+])\s*(\d+)\s*", expression).groups()  # type: ignore[union-attr]
    return str(int(left) * int(right) if sign == "*" else int(left) + int(right))


@sgl.function
def tool_use(s, lhs, rhs):
    s += "calculate(expression) gives a value. For example,\ncalculate(1+2)=3\n"
    s += f"Question: What is {lhs} times {rhs}?\n"
    s += "Answer: The answer is calculate(" + sgl.gen("expression", stop=")") + ") = "
    with s.var_scope("answer"):
        s += calculate(s["expression"])


@sgl.function
def react(s, question):
    s += "Question: Where was the founder of the firm born?\nThought 1: I search.\n"
    s += "Action 1: Search [founder].\nObservation 1: Paris.\nAction 2: Finish [Paris].\n\n"
    s += "Question: " + question + "\n"
    for turn in range(1, 5):
        s += f"Thought {turn}:" + sgl.gen(stop=[".", "\n"]) + ".\n"
        s += f"Action {turn}: " + sgl.select(f"action_{turn}", ["Search", "Finish"])
        if s[f"action_{turn}"] == "Search":
            s += " [" + sgl.gen(stop="]") + "].\n"
            s += f"Observation {turn}:" + sgl.gen(stop=[".", "\n"]) + ".\n"
        else:
            s += " [" + sgl.gen("answer", stop="]") + "].\n"
            break


@sgl.function
def parallel_decoding(s, topic):
    s += "Give some tips for " + topic + ".\n"
    for index in range(1, 1 + NUM_TIPS):
        s += f"{index}." + sgl.gen(max_tokens=16, stop=[".", "\n"]) + ".\n"
    forks = s.fork(NUM_TIPS)
    for index in range(NUM_TIPS):
        forks[index] += f"Now tip {index + 1} as a paragraph:\nTip {index + 1}:"
        forks[index] += sgl.gen("detailed_tip", 24, stop=["\n\n"])
    forks.join()
    s += "The tips with details:\n"
    for index in range(NUM_TIPS):
        s += f"Tip {index + 1}:" + forks[index]["detailed_tip"] + "\n"
    s += "\nIn summary," + sgl.gen("summary", max_tokens=32)


@sgl.function
def parallel_encoding(s, question, context_0, context_1, context_2):
    s += "USER: Some statements follow.\n"
    contexts = [context_0, context_1, context_2]
    forks = s.fork(len(contexts))
    forks += lambda index: f"Statement {index}: " + contexts[index] + "\n"
    forks.join(mode="concate_and_append")
    s += "Question: " + question + "\n"
    s += "ASSISTANT:" + sgl.gen("answer", max_tokens=16)


@sgl.function
def qa(s, question):
    s += sgl.system("You are helpful.")
    s += sgl.user(question)
    s += sgl.assistant(sgl.gen("answer"))


@sgl.function
def regex_gen(s):
    s += "Q: What is the address of the name server?\n"
    s += "A: " + sgl.gen("answer", temperature=0, regex=IP_ADDRESS)


@sgl.function
def dtype_gen(s):
    s += "Q: What does DNS mean?\n"
    s += "A: " + sgl.gen("str_res", dtype=str, stop="\n") + "\n"
    s += "Q: In which year did it begin?\n"
    s += "A: " + sgl.gen("int_res", dtype=int) + "\n"
    s += "Q: What is pi?\n"
    s += "A: " + sgl.gen("float_res", dtype=float) + "\n"
    s += "Q: Is the sky blue?\n"
    s += "A: " + sgl.gen("bool_res", dtype=bool) + "\n"


@sgl.function(num_api_spec_tokens=64)
def character(s):
    s += "A character:\nName: Ann Lee.\nBirthday: 2 May 1955.\nJob: Baker.\n\nAnother one.\n"
    s += "Name:" + sgl.gen("name", stop="\n") + "\nBirthday:" + sgl.gen("birthday", stop="\n")
    s += "\nJob:" + sgl.gen("job", stop="\n") + "\n"


@sgl.function(num_api_spec_tokens=256)
def character_in_chat(s):
    s += sgl.system("You are helpful.")
    s += sgl.user("Invent a character, as in this form:")
    s += sgl.assistant("Name: Ann Lee.\nBirthday: 2 May 1955.\nJob: Baker.\n")
    s += sgl.user("Another name, birthday and job.\n")
    s += sgl.assistant(
        "Name:"
        + sgl.gen("name", stop="\n")
        + "\nBirthday:"
        + sgl.gen("birthday", stop="\n")
        + "\nJob:"
        + sgl.gen("job", stop="\n")
    )


@sgl.function
def image_qa(s, question):
    s += sgl.user(sgl.image("example_image.png") + question)
    s += sgl.assistant(sgl.gen("answer"))


@sgl.function
def long_answer(s):
    s += sgl.user("What is the capital of Peru?")
    s += sgl.assistant(sgl.gen("answer", min_tokens=64, max_tokens=80))


def example_of(line: dict[str, Any], with_answer: bool) -> str:
    """A line of the endings bench as text."""
    ending: str = line["endings"][line["label"]] if with_answer else ""
    return f"{line['activity_label']}: {line['ctx']} {ending}"


def endings_program(lines: list[dict[str, Any]], num_shots: int) -> SglFunction:
    """The program of the endings bench: which of four endings follows a text."""
    shots = "".join(example_of(line, True) + "\n\n" for line in lines[:num_shots])

    @sgl.function
    def few_shot_endings(s, question, choices):
        s += shots + question
        s += sgl.select("answer", choices=choices)

    return few_shot_endings
