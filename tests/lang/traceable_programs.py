"""Programs whose course depends on no generated value: the shapes of sections 3 to 9.

Each comes with arguments, and runs on a scripted backend whose answers are functions of the prompt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import espalier as sgl
from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.lang.function import SglFunction

Case = tuple[SglFunction, dict[str, Any]]
PROGRAMS: dict[str, Case] = {}


def echoing_backend(**options: Any) -> ScriptedBackend:
    """Answers with a function of the prompt and the call's key, so that every difference shows."""

    def answer(call: ScriptedCall) -> str | list[str]:
        number = sum(call.text.encode()) % 997
        if call.kind == "score":
            return call.choices[number % len(call.choices)]
        texts = [f"<{number}.{call.seed_key % 89}.{i}>" for i in range(call.sampling.n)]  # type: ignore[union-attr]
        return texts if len(texts) > 1 else texts[0]

    return ScriptedBackend(answer, **options)


def program(**arguments: Any) -> Callable[[Callable[..., Any]], SglFunction]:
    """Enters a program into PROGRAMS with its arguments."""

    def enter(function: Callable[..., Any]) -> SglFunction:
        made = sgl.function(function)
        PROGRAMS[function.__name__] = (made, arguments)
        return made

    return enter


@program(question="What is the capital of Peru?")
def few_shot(s: Any, question: str) -> None:
    s += "Questions with answers.\n\n"
    s += "Q: What is the capital of Portugal?\nA: Lisbon\n"
    s += "Q: " + question + "\nA:" + sgl.gen("answer", stop="\n", temperature=0)


@program(question_1="Write a plan.", question_2="Shorten it.")
def chat(s: Any, question_1: str, question_2: str) -> None:
    s += sgl.system("Be careful.")
    s += sgl.user(question_1)
    s += sgl.assistant(sgl.gen("answer_1"))
    with s.user():
        s += question_2
    s.assistant_begin()
    s += "Sure: " + sgl.gen("answer_2", max_tokens=9)
    s.assistant_end()


@program(statement="Water is wet.", options=["True", "False", "Unknown"])
def judged(s: Any, statement: str, options: list[str]) -> Any:
    s += "Statement: " + statement + "\nAnswer:" + sgl.select("answer", choices=options)
    s += "\nSure? " + sgl.gen("sure", choices=["yes", "no"])
    return s["answer"]


@program(question="Why?")
def expert(s: Any, question: str) -> Any:
    s += "Question: " + question + "\nA good person to answer is" + sgl.gen("expert", stop=".")
    s += ".\nAs" + s["expert"] + " I say:" + sgl.gen("answer", stop=".") + "."
    return "By " + s["expert"] + ": " + s["answer"]


@program(topic="tea")
def parallel(s: Any, topic: str) -> dict[str, Any]:
    s += "Tips about " + topic + ".\n"
    forks = s.fork(3)
    forks += lambda i: f"Tip {i + 1}: " + sgl.gen("tip", stop="\n") + "\nMore:" + sgl.gen("more")
    forks.join()
    for i in range(3):
        s += f"{i + 1}. " + forks[i]["tip"] + "\n" + s["more"][i]
    s += "In short:" + sgl.gen("summary")
    return {"summary": s["summary"], "tips": s["tip"], "text": s.text()}


@program(names=("Ann", "Ben"))
def joined_text(s: Any, names: tuple[str, ...]) -> Any:
    s += sgl.user("Who?")
    s += sgl.assistant_begin()
    forks = s.fork(2)
    forks += [sgl.gen("a"), " and " + sgl.gen("a")]
    forks.join("concat_text")
    more = s.fork(2)
    more[0] += "X" + sgl.gen("b")
    inner = more[1].fork(2)
    inner += "in" + sgl.gen("c")
    inner.join("concate_and_append")
    more.join("concate_and_append")
    s += "!" + sgl.gen("d")
    s += sgl.assistant_end()
    return s.messages()


@program(n_lines="3")
def forms(s: Any, n_lines: str) -> Any:
    with s.var_scope("json"):
        s += '{"name": ' + sgl.gen_string("name") + ', "lines": ' + sgl.gen_int() + "}"
    s += n_lines + sgl.gen("three", n=3, temperature=0.5, top_p=0.9)
    s["copy"] = s["json"]
    s["note"] = "a note on " + s["three"][1]
    s += s["three"][2] + sgl.gen("ip", regex=r"[0-9.<>]+", max_tokens=20)
    with s.copy() as side:
        side.user("aside" + sgl.gen("aside"))
    return [s["copy"], s["aside"], s["note"], s.text("three")]


@program(limit=7)
def given_sampling(s: Any, limit: int, word: str = "Go") -> None:
    s += word + sgl.gen("a", max_tokens=limit) + sgl.gen("b", temperature=0, seed=3)


@sgl.function
def inner(s: Any, what: str) -> Any:
    s += "Look at " + what + ":" + sgl.gen("seen", max_tokens=5)
    return "I see" + s["seen"]


@program(thing="a tree")
def nesting(s: Any, thing: str) -> Any:
    s += "First" + sgl.gen("first")
    told = inner(thing)
    s += told["seen"] + sgl.gen("second")
    again = inner.run(s["first"], temperature=0.25, seed=5)
    s += again.ret_value + "." + sgl.gen("third")
    return told.text()


@program(question="Q")
async def awaited(s: Any, question: str) -> Any:
    s += question + sgl.gen("a")
    forks = s.fork(2)
    forks += "then" + sgl.gen("b")
    await forks.ajoin()
    s += await s.aget("a")
    return await s.aget("b")


def random_program(seed: int) -> SglFunction:
    """A program of random operations; the same seed gives the same program."""

    def body(s: Any, word: str) -> Any:
        rng = random.Random(seed)
        s += "start " + word
        act(rng, s, 3, word)
        return [s[name] for name in ("v0", "v1") if name in s]

    body.__name__ = f"random_{seed}"
    return sgl.function(body)


def act(rng: random.Random, s: Any, depth: int, word: str) -> None:
    for _ in range(rng.randint(1, 7)):
        kind = rng.random()
        name = f"v{rng.randint(0, 5)}"
        if kind < 0.2:
            s += f" t{rng.randint(0, 99)}"
        elif kind < 0.25:
            s += word
        elif kind < 0.5:
            s += sgl.gen(name, temperature=rng.choice([None, 0.5]))
        elif kind < 0.6:
            s += sgl.select(name, choices=["one", "two", "three"])
        elif kind < 0.7:
            if name in s and not isinstance_list(s[name]):
                s += "(" + s[name] + ")"
        elif kind < 0.75:
            if s_role(s) is None:
                s += sgl.user("u" + sgl.gen(name))
        elif kind < 0.8:
            with s.var_scope(f"scope{rng.randint(0, 2)}{depth}"):
                s += "in" + sgl.gen(name)
        elif kind < 0.85:
            s += inner(word)["seen"]
        elif depth:
            fork(rng, s, depth, word)


def fork(rng: random.Random, s: Any, depth: int, word: str) -> None:
    size = rng.randint(0, 3)
    group = s.fork(size)
    for child in group:
        act(rng, child, depth - 1, word)
    mode = rng.choice(["gather_variable", "concat_text", "concate_and_append", ""])
    if mode:
        group.join(mode)


def isinstance_list(value: Any) -> bool:
    return type(value) is list


def s_role(s: Any) -> str | None:
    role: str | None = s.stream.open_role if isinstance(s, sgl.ProgramState) else s.open_role
    return role


def seen(state: Any) -> Mapping[str, Any]:
    """All that can be read of a state, once all of its program's calls have ended."""
    state.stream.program.when_idle().wait()
    names = [name for name in state.stream.variables if name is not None]
    return {
        "text": state.text(),
        "messages": state.messages(),
        "variables": {name: state[name] for name in names},
        "texts": {name: state.text(name) for name in names},
        "returned": state.ret_value,
    }


def made(backend: ScriptedBackend) -> list[tuple[Any, ...]]:
    """The calls that a backend got, in an order that does not depend on time."""
    return sorted(
        (call.kind, call.text, call.seed_key, repr(call.sampling), call.choices)
        for call in backend.calls
        if call.kind != "prefill"
    )
