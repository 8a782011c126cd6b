"""The shapes of program that the reference's benchmarks run, written for its names alone."""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import espalier as sgl
from espalier.lang.ir import REGEX_FLOAT, REGEX_INT, REGEX_STR

NUM_CHAINS = 3
DIMENSIONS = ("clarity", "originality", "evidence")
CHARACTER = (
    r"\{\n"
    r'    "name": "[\w\d\s]{1,16}",\n'
    r'    "house": "(North|South|East|West)",\n'
    r'    "alive": (true|false),\n'
    r'    "wand": \{\n'
    r'        "length": [0-9]{1,2}\.[0-9]{0,2}\n'
    r"    \}\n"
    r"\}"
)


@sgl.function
def few_shot_mmlu(s, examples, question):
    s += examples + question + sgl.gen("answer", max_tokens=1)


@sgl.function
def few_shot_gsm8k(s, examples, question):
    s += examples + question
    s += sgl.gen("answer", max_tokens=64, stop=["Question", "Assistant:", "<|separator|>"])


@sgl.function
def poignancy_of_event(s, persona, event):
    s += "Here is a brief description of " + persona + ".\n"
    s += "On a scale of 1 to 10, how poignant is the event for them?\nEvent: " + event
    s += "\nRate (a number from 1 to 10):" + sgl.gen(name="Rating", max_tokens=2)


@sgl.function
def next_place(s, persona, places):
    s += persona + " may go to: " + ", ".join(places) + ".\n"
    s += "The place to go to is {" + sgl.gen(name="Place", max_tokens=10, stop="}") + "}"


def propose_plan(s: Any, question: str, num_branches: int) -> Any:
    s += sgl.user("Propose a plan to solve this question, and do not compute.\n" + question)
    forks = s.fork(num_branches)
    forks += sgl.assistant(sgl.gen("plan", max_tokens=32, temperature=0.5))
    return forks


def execute_plan(s: Any, num_branches: int) -> Any:
    s += sgl.user("Carry the plan out and compute the answer.")
    forks = s.fork(num_branches)
    forks += sgl.assistant(sgl.gen("answer", max_tokens=32, temperature=0.5))
    return forks


def reflect_solution(s: Any, num_branches: int) -> Any:
    s += sgl.user("Look at your solution and judge it.")
    forks = s.fork(num_branches)
    forks += sgl.assistant(sgl.gen("score", max_tokens=32, temperature=0.5))
    return forks


def get_final_answer(s: Any, num_branches: int) -> Any:
    s += sgl.user("Give the final answer as a number.")
    forks = s.fork(num_branches)
    forks += sgl.assistant(sgl.gen("final_answer", max_tokens=8, temperature=0.5))
    return forks


@sgl.function
def tree_search(s, question, num_branches):
    s += sgl.system("You solve questions step by step.")
    solutions = []
    for plan in propose_plan(s, question, num_branches):
        for execution in execute_plan(plan, num_branches):
            solutions += list(reflect_solution(execution, num_branches))
    return solutions


@sgl.function
def deep_tree_search(s, question, num_branches):
    s += sgl.system("You solve questions step by step.")
    solutions = []
    for plan in propose_plan(s, question, num_branches):
        for execution in execute_plan(plan, num_branches):
            for reflection in reflect_solution(execution, num_branches):
                solutions += [x["final_answer"] for x in get_final_answer(reflection, 1)]
    return solutions


@sgl.function
def expand_tip(s, topic, tip):
    s += "Write a tip about a topic as a paragraph.\nTopic: " + topic + "\nTip: " + tip
    s += "\nParagraph:" + sgl.gen("paragraph", max_tokens=128, stop=["\n\n"])


@sgl.function
def suggest_tips(s, topic, number):
    s += "Topic: " + topic + f"\n{number} tips:\n"
    s += "1." + sgl.gen("skeleton", stop="<end>")
    tips = [line.split(".", 1)[-1].strip() for line in ("1." + s["skeleton"]).splitlines()]
    details = [expand_tip(topic=topic, tip=tip) for tip in tips if tip]
    for index, detail in enumerate(details):
        s += f"Tip {index + 1}: {tips[index]}\n" + detail["paragraph"] + "\n"


@sgl.function
def multi_dimensional_judge(s, article):
    s += "Judge this article.\n```\n" + article + "\n```\n\n"
    forks = s.fork(len(DIMENSIONS))
    for index, dimension in enumerate(DIMENSIONS):
        forks[index] += f"USER: Judge its {dimension}. End with a number out of 10.\nASSISTANT:"
        forks[index] += " " + sgl.gen("judgment", max_tokens=64, stop="END")
    forks.join()
    s += "".join(
        f"{dimension}: {forks[index]['judgment'].strip()}\n"
        for index, dimension in enumerate(DIMENSIONS)
    )
    s += "In summary," + sgl.gen("summary", max_tokens=64, stop=["USER:"]) + ". Final grade: "
    s += sgl.gen("final_score", max_tokens=1)


@sgl.function
def json_by_one_regex(s, name):
    s += name + " is a character. Please fill in the form.\n"
    s += sgl.gen("json_output", max_tokens=128, regex=CHARACTER)


@sgl.function
def json_by_pieces(s, document):
    s += "Read this.\n" + document + "\nFill in the form.\n"
    with s.var_scope("json_output"):
        s += '{\n  "name": ' + sgl.gen("name", max_tokens=8, regex=REGEX_STR + ",") + "\n"
        s += '  "rooms": ' + sgl.gen("rooms", max_tokens=8, regex=REGEX_INT + ",") + "\n"
        s += '  "height": ' + sgl.gen("height", max_tokens=8, regex=REGEX_FLOAT) + "\n}"


@sgl.function
def long_json_by_stops(s, document):
    s += "Read this.\n" + document + "\n"
    with s.var_scope("json_output"):
        s += "{\n"
        for name in ("name", "country", "river", "mayor"):
            s += f'  "{name}": "' + sgl.gen(name, max_tokens=8, stop='"') + '",\n'
        s += '  "latitude": ' + sgl.gen("latitude", max_tokens=8, stop=[",", "\n", "}"]) + "\n}"


@sgl.function
def multi_turns(s, qas):
    for qa in qas:
        s += qa["prompt"]
        s += sgl.gen(max_tokens=qa["new_tokens"], ignore_eos=True)


@sgl.function
def multi_chain(s, question):
    s += "Question: " + question + "\n"
    forks = s.fork(NUM_CHAINS)
    for index in range(NUM_CHAINS):
        forks[index] += f"Way {index}, step by step:"
        forks[index] += sgl.gen("chain", max_tokens=32, temperature=0.3, stop="Question")
    forks.join()
    s += "Answers of several people:\n"
    for index in range(NUM_CHAINS):
        s += f"Person {index + 1}:" + forks[index]["chain"].strip() + "\n"
    s += "So the answer is" + sgl.gen("answer", max_tokens=8)


@sgl.function
def multi_document_qa(s, docs, question):
    s += sgl.user_begin()
    s += "Answer the question by the documents.\n"
    forks = s.fork(len(docs))
    forks += lambda index: f"[{index}] " + docs[index] + "\n"
    forks.join("concate_and_append")
    s += "\nQuestion: " + question
    s += sgl.user_end()
    s += sgl.assistant("Answer:" + sgl.gen("answer", max_tokens=16))


@sgl.function
def line_retrieval(s, prefix, suffix, body_0, body_1):
    s += prefix + "\n"
    bodies = [body_0, body_1]
    forks = s.fork(len(bodies))
    forks += lambda index: bodies[index] + "\n"
    forks.join("concate_and_append")
    s += suffix
    s += sgl.gen("answer", max_tokens=16)


@sgl.function
def answer_mt_bench(s, question_1, question_2):
    s += sgl.system()
    s += sgl.user(question_1)
    s += sgl.assistant(sgl.gen("answer_1"))
    s += sgl.user(question_2)
    s += sgl.assistant(sgl.gen("answer_2"))


@sgl.function
def webthink(s, question, triplets):
    s += "Interleave thoughts, actions and observations.\n" + question
    for index, step in enumerate(triplets, start=1):
        s += f"Thought {index}:" + sgl.gen(f"thought_{index}", stop=["\n", "Observation"])
        # The trace says what was found; what the model wrote is measured, not followed.
        s += " " + step["thought"] + f"\nAction {index}: " + step["action"]
        s += f"\nObservation {index}: " + step["observation"] + "\n"


@sgl.function
def image_question(s, image_file, question):
    s += sgl.user(sgl.image(image_file) + question)
    s += sgl.assistant(sgl.gen("answer", max_tokens=64))
