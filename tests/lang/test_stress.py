"""Random programs: the concurrent interpreter against a sequential reading of the same program."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import GenerationError, RequestCancelledError
from espalier.lang.api import gen, user
from espalier.lang.function import function
from espalier.lang.state import ProgramState

FAIL = "FAIL"


def answer_to(text: str) -> str | BaseException:
    """What the model says: a function of the prompt, an error where it ends in FAIL."""
    if text.endswith(FAIL):
        return ValueError("scripted")
    return f"<{sum(text.encode()) % 997}>"


@dataclass
class Model:
    """A state by the book: everything happens at once, in order."""

    text: str = ""
    variables: dict[str, Any] = field(default_factory=dict)
    failed: bool = False

    def append(self, text: str) -> None:
        if not self.failed:
            self.text += text

    def generate(self, name: str) -> None:
        answer = answer_to(self.text)
        if self.failed or isinstance(answer, BaseException):
            self.failed = True
            self.variables[name] = GenerationError
        else:
            self.text += answer
            self.variables[name] = answer


def act(rng: random.Random, state: ProgramState, model: Model, depth: int, fail: bool) -> None:
    """Applies the same random operations to both."""
    for _ in range(rng.randint(1, 6)):
        choice = rng.random()
        if choice < 0.35:
            text = f" t{rng.randint(0, 99)}"
            state.__iadd__(text)
            model.append(text)
        elif choice < 0.7:
            if fail and rng.random() < 0.15:
                state.__iadd__(FAIL)
                model.append(FAIL)
            name = f"v{rng.randint(0, 9)}"
            state.__iadd__(gen(name))
            model.generate(name)
        elif choice < 0.8:
            state.__iadd__(user("u"))
            model.append("USER:u\n")
        elif choice < 0.9:
            name = f"v{rng.randint(0, 9)}"
            if name in model.variables:
                compare_variable(state, model, name)
        elif depth:
            fork_both(rng, state, model, depth, fail)


def fork_both(
    rng: random.Random, state: ProgramState, model: Model, depth: int, fail: bool
) -> None:
    size = rng.randint(0, 3)
    group = state.fork(size)
    models = [Model(model.text, dict(model.variables), model.failed) for _ in range(size)]
    for fork, twin in zip(group, models, strict=True):
        act(rng, fork, twin, depth - 1, fail)
    mode = rng.choice(["gather_variable", "concat_text", "none"])
    if mode == "none":
        for fork, twin in zip(group, models, strict=True):
            compare(fork, twin)
        return
    if any(twin.failed for twin in models):
        with pytest.raises((GenerationError, RequestCancelledError)):
            group.join(mode, on_error=rng.choice(["raise", "cancel"]))
        return
    before = len(model.text)
    group.join(mode)
    new = {name for twin in models for name in twin.variables if name not in model.variables}
    for name in new:
        model.variables[name] = [twin.variables.get(name) for twin in models]
    if mode == "concat_text":
        model.append("".join(twin.text[before:] for twin in models))


def compare_variable(state: ProgramState, model: Model, name: str) -> None:
    if model.variables[name] is GenerationError:
        with pytest.raises(GenerationError):
            _ = state[name]
    else:
        assert state[name] == model.variables[name]


def compare(state: ProgramState, model: Model) -> None:
    assert {name for name in state.stream.variables if name} == set(model.variables)
    for name in model.variables:
        compare_variable(state, model, name)
    if model.failed:
        assert isinstance(state.error(), GenerationError)
    else:
        assert state.text() == model.text


@function
def random_program(s: ProgramState, seed: int, fail: bool) -> None:
    model = Model()
    s += "start"
    model.append("start")
    act(random.Random(seed), s, model, 3, fail)
    compare(s, model)


@pytest.mark.parametrize("fail", [False, True])
def test_random_programs_mean_the_same_as_in_sequence(fail: bool) -> None:
    def answer(call: ScriptedCall) -> str | BaseException:
        return answer_to(call.text)

    backend = ScriptedBackend(answer, latency_s=(0.0, 0.002), seed=1)
    items = [{"seed": seed, "fail": fail} for seed in range(150)]
    random_program.run_batch(
        items, backend=backend, num_threads=24, on_error="raise" if not fail else "return"
    )
    states = random_program.run_batch(items, backend=backend, num_threads=24, on_error="return")
    for state in states:
        error = state.error()
        assert error is None or (fail and isinstance(error, GenerationError)), error


def test_random_cancels_leave_nothing_waiting() -> None:
    rng = random.Random(3)

    @function
    def program(s: ProgramState, cancel: bool) -> str:
        s += "p" + gen("x")
        forks = s.fork(3)
        forks += "q" + gen("y")
        if cancel:
            rng.choice([s, *forks]).cancel()
        try:
            forks.join()
            return str(s["y"])
        except (GenerationError, RequestCancelledError):
            return "cancelled"

    backend = ScriptedBackend("!", latency_s=(0.0, 0.003))
    items = [{"cancel": rng.random() < 0.5} for _ in range(200)]
    states = program.run_batch(items, backend=backend, num_threads=16, on_error="return")
    for item, state in zip(items, states, strict=True):
        assert item["cancel"] or state.ret_value == "['!', '!', '!']"
    assert backend._in_flight == 0
