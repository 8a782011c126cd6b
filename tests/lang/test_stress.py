"""Random programs: the concurrent interpreter against a sequential reading of the same program."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.lang.conftest import pending_tasks, program_threads

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.errors import GenerationError, RequestCancelledError
from espalier.lang import loop
from espalier.lang.api import gen, select, user
from espalier.lang.function import function
from espalier.lang.state import ProgramState

FAIL = "FAIL"
OPEN = object()  # value of a scope's variable inside its block, and in forks that were made there
CHOICES = ["<yes>", "<no>"]
NUM_PROGRAMS = 500


def answer_to(text: str) -> str:
    """What the model says: a function of the prompt."""
    return f"<{sum(text.encode()) % 997}>"


def choice_after(text: str) -> str:
    return CHOICES[sum(text.encode()) % 2]


def scripted_answer(call: ScriptedCall) -> str | BaseException:
    if call.text.endswith(FAIL):
        return ValueError("scripted")
    return choice_after(call.text) if call.kind == "score" else answer_to(call.text)


@dataclass
class Model:
    """A state by the book: everything happens at once, in order."""

    text: str = ""
    variables: dict[str, Any] = field(default_factory=dict)
    failed: bool = False

    def append(self, text: str) -> None:
        if not self.failed:
            self.text += text

    def generate(self, name: str, *, chooses: bool = False) -> None:
        if self.failed or self.text.endswith(FAIL):
            self.failed = True
            self.variables[name] = GenerationError
        else:
            answer = choice_after(self.text) if chooses else answer_to(self.text)
            self.text += answer
            self.variables[name] = answer

    def fork(self) -> Model:
        return Model(self.text, dict(self.variables), self.failed)


class Walk:
    """Applies the same random operations to a state and to its model."""

    def __init__(self, seed: int, *, fail: bool, cancel: bool) -> None:
        self.rng = random.Random(seed)
        self.fail = fail
        self.cancel = cancel

    def act(self, state: ProgramState, model: Model, depth: int) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self._step(state, model, depth)

    def _step(self, state: ProgramState, model: Model, depth: int) -> None:
        choice = self.rng.random()
        if choice < 0.25:
            self._text(state, model)
        elif choice < 0.5:
            self._call(state, model)
        elif choice < 0.57:
            state.__iadd__(user("u"))
            model.append("USER:u\n")
        elif choice < 0.67:
            name = f"v{self.rng.randint(0, 9)}"
            if name in model.variables:
                compare_variable(state, model, name)
        elif choice < 0.74 and depth:
            self._scope(state, model, depth)
        elif choice < 0.78:
            self._inner(state, model)
        elif choice < 0.84 and depth:
            self._copy(state, model, depth)
        elif choice < 0.87 and self.cancel and depth < 3:
            state.cancel()
            state.error()  # what has ended before may have
            model.failed = True
            raise _CancelledError
        elif depth:
            self._fork(state, model, depth)

    def _text(self, state: ProgramState, model: Model) -> None:
        text = f" t{self.rng.randint(0, 99)}"
        state.__iadd__(text)
        model.append(text)

    def _call(self, state: ProgramState, model: Model) -> None:
        if self.fail and self.rng.random() < 0.15:
            state.__iadd__(FAIL)
            model.append(FAIL)
        name, chooses = f"v{self.rng.randint(0, 9)}", self.rng.random() < 0.3
        state.__iadd__(select(name, CHOICES) if chooses else gen(name))
        model.generate(name, chooses=chooses)

    def _scope(self, state: ProgramState, model: Model, depth: int) -> None:
        name, start = f"s{depth}", len(model.text)
        model.variables[name] = OPEN
        with state.var_scope(name):
            self.act(state, model, depth - 1)
        model.variables[name] = GenerationError if model.failed else model.text[start:]

    def _inner(self, state: ProgramState, model: Model) -> None:
        """A program inside: its result becomes a variable and a part of the text."""
        number = self.rng.randint(0, 99)
        name = f"v{self.rng.randint(0, 9)}"
        value = inner(number=number)["y"]
        assert value == answer_to(f"inner {number}")
        state[name] = value
        model.variables[name] = value

    def _copy(self, state: ProgramState, model: Model, depth: int) -> None:
        twin = model.fork()
        try:
            with state.copy() as copied:
                self.act(copied, twin, depth - 1)
        except (GenerationError, RequestCancelledError, _CancelledError):
            assert twin.failed
            return
        assert not twin.failed
        gather([twin], model)

    def _fork(self, state: ProgramState, model: Model, depth: int) -> None:
        size = self.rng.randint(0, 3)
        mode = self.rng.choice(["gather_variable", "concat_text", "concate_and_append", "none"])
        on_error = self.rng.choice(["raise", "cancel"])
        models = [model.fork() for _ in range(size)]
        is_block = self.rng.random() < 0.2
        group = state.fork(size)
        for fork, twin in zip(group, models, strict=True):
            self._act_in_fork(fork, twin, depth - 1)
        if mode == "none":
            for fork, twin in zip(group, models, strict=True):
                if not (self.cancel and twin.failed):
                    compare(fork, twin)
            if is_block:
                with group:
                    pass
            return
        if any(twin.failed for twin in models):
            with pytest.raises((GenerationError, RequestCancelledError)):
                group.join(mode, on_error=on_error)
            return
        before = len(model.text)
        group.join(mode)
        if mode != "concate_and_append":
            gather(models, model)
        if mode != "gather_variable":
            model.append("".join(twin.text[before:] for twin in models))

    def _act_in_fork(self, fork: ProgramState, twin: Model, depth: int) -> None:
        try:
            self.act(fork, twin, depth)
        except _CancelledError:
            assert twin.failed


class _CancelledError(Exception):
    """Leaves the operations on a state that was cancelled."""


def gather(models: list[Model], target: Model) -> None:
    names = dict.fromkeys(name for twin in models for name in twin.variables)
    for name in [name for name in names if name not in target.variables]:
        target.variables[name] = [twin.variables.get(name) for twin in models]


def compare_variable(state: ProgramState, model: Model, name: str) -> None:
    if model.variables[name] is OPEN:
        return
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
def inner(s: ProgramState, number: int) -> None:
    s += f"inner {number}" + gen("y")


@function
def random_program(s: ProgramState, seed: int, fail: bool, cancel: bool = False) -> Model:
    model = Model()
    s += "start"
    model.append("start")
    try:
        Walk(seed, fail=fail, cancel=cancel).act(s, model, 3)
    except _CancelledError:
        return model
    compare(s, model)
    return model


@function
async def random_async(s: ProgramState, seed: int) -> None:
    """Forks, joins and reads of an async program, by the book as well."""
    rng = random.Random(seed)
    model = Model("start")
    s += "start"
    for turn in range(rng.randint(1, 3)):
        models = [model.fork() for _ in range(rng.randint(0, 3))]
        group = s.fork(len(models))
        for index, (fork, twin) in enumerate(zip(group, models, strict=True)):
            fork.__iadd__(f" {index}" + gen(f"x{turn}"))
            twin.append(f" {index}")
            twin.generate(f"x{turn}")
        mode, before = rng.choice(["gather_variable", "concat_text"]), len(model.text)
        await group.ajoin(mode)
        gather(models, model)
        if mode == "concat_text":
            model.append("".join(twin.text[before:] for twin in models))
        s += gen("last")
        model.generate("last")
        assert await s.aget("last") == model.variables["last"]
    assert await s.atext() == model.text
    for name, value in model.variables.items():
        assert await s.aget(name) == value


class Watched:
    """Notes every state, stream and program that is made, weakly."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[weakref.ref[Any]] = []
        from espalier.lang.program import Program
        from espalier.lang.stream import Stream

        for kind in (ProgramState, Stream, Program):
            self._watch(monkeypatch, kind)

    def _watch(self, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
        original = kind.__init__  # type: ignore[misc]

        def init(made: Any, *args: Any, **kwargs: Any) -> None:
            original(made, *args, **kwargs)
            self.made.append(weakref.ref(made))

        monkeypatch.setattr(kind, "__init__", init)

    def num_left(self) -> int:
        deadline = time.monotonic() + 10
        while True:
            gc.collect()
            left = sum(made() is not None for made in self.made)
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.01)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Fails a test that leaves a state, stream, program, task or thread."""
    watched = Watched(monkeypatch)
    before = threading.active_count()
    yield watched
    assert watched.num_left() == 0
    deadline = time.monotonic() + 10
    while (program_threads() or pending_tasks()) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert pending_tasks() == []
    assert threading.active_count() <= before + 1  # the loop's, where this was the first test
    assert loop.event_loop().is_running()


def backend(seed: int) -> ScriptedBackend:
    return ScriptedBackend(scripted_answer, latency_s=(0.0, 0.002), seed=seed)


@pytest.mark.parametrize("kind", ["well", "errors", "cancels", "streaming"])
def test_random_programs_mean_the_same_as_in_sequence(kind: str, watched: Watched) -> None:
    scripted = backend(1)
    fail, cancel = kind == "errors", kind == "cancels"
    items = [{"seed": seed, "fail": fail, "cancel": cancel} for seed in range(NUM_PROGRAMS // 4)]
    if kind == "streaming":
        stream_all(items, scripted)
    else:
        on_error = "raise" if kind == "well" else "return"
        states = random_program.run_batch(
            items, backend=scripted, num_threads=24, on_error=on_error
        )
        for state in states:
            allowed = (GenerationError, RequestCancelledError) if cancel else GenerationError
            error = state.error()
            assert error is None or (kind != "well" and isinstance(error, allowed)), repr(error)
        del state, error
    assert len(watched.made) > NUM_PROGRAMS
    assert scripted._in_flight == 0
    scripted.calls.clear()


def stream_all(items: list[dict[str, Any]], scripted: ScriptedBackend) -> None:
    """Each program streams to two iterators, of its text and of a variable."""

    def read(state: ProgramState) -> None:
        pieces = "".join(state.text_iter())
        assert pieces == state.text() == state.ret_value.text
        for name, value in state.ret_value.variables.items():
            shown = value[0] if isinstance(value, list) else value
            assert "".join(state.text_iter(name)) == str(shown)

    for start in range(0, len(items), 16):
        states = [
            random_program.run(backend=scripted, stream=True, **item)
            for item in items[start : start + 16]
        ]
        for state in states:
            read(state)


def test_random_async_programs_mean_the_same_as_in_sequence(watched: Watched) -> None:
    scripted = backend(2)
    items = [{"seed": seed} for seed in range(NUM_PROGRAMS // 4)]
    random_async.run_batch(items, backend=scripted)
    asyncio.run(random_async.arun_batch(items, backend=scripted))
    assert scripted._in_flight == 0
    scripted.calls.clear()


def test_random_cancels_leave_nothing_waiting(watched: Watched) -> None:
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
