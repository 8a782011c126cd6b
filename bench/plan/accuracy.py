"""How well a plan predicts what the engine computes: the examples, planned and run.

    python bench/plan/accuracy.py [--model PATH] [--json]

Each program runs once, call by call, to record its answers; then as its example runs it, on an
empty cache, to measure; then it is planned with the recorded lengths, with the texts of variables
that it reads, and with the recorded choices. Compared are prompt tokens and computed tokens.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.plan.recorded import RecordingBackend
from bench.report import print_report

import espalier
from espalier.lang.function import SglFunction

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@dataclass(frozen=True)
class Case:
    """A program of an example with its batch; `texts_of` are the variables that it reads."""

    example: str
    program: str
    items: Callable[[ModuleType], list[Any]]
    texts_of: tuple[str, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()


_STORY = (("temperature", 0.5), ("seed", 3))  # as the example runs it
CASES = [
    Case("quickstart", "capital", lambda _: [("France",), ("Japan",), ("Egypt",), ("Germany",)]),
    Case("few_shot", "classify", lambda m: [(sentence,) for sentence in m.SENTENCES]),
    Case("few_shot", "extract", lambda m: [(sentence,) for sentence in m.FACTS]),
    Case("multi_turn", "conversation", lambda m: [(m.QUESTIONS,)]),
    Case(
        "essay_judge",
        "judge",
        lambda m: [(m.ESSAY, m.TOPIC), (m.OTHER_ESSAY, m.TOPIC)],
        ("comment",),
    ),
    Case(
        "react_agent", "answer", lambda m: [(question,) for question in m.QUESTIONS], ("input_*",)
    ),
    Case(
        "tree_of_thought",
        "storyteller",
        lambda _: [()],
        (),
        _STORY,
    ),
    Case("tree_of_thought", "vote", lambda m: [(m.storyteller.run(**dict(_STORY)).ret_value,)]),
    Case("extract", "extract", lambda m: [(message,) for message in m.MESSAGES], ("order",)),
]


@dataclass(frozen=True)
class Row:
    """Tokens of one program: counted by the engine, and planned."""

    program: str
    prompt_tokens: int
    planned_prompt_tokens: int
    computed_tokens: int
    planned_computed_tokens: int

    @property
    def error(self) -> float:
        """(planned - computed) / computed."""
        return self.planned_computed_tokens / self.computed_tokens - 1


def load_example(name: str) -> ModuleType:
    """The example's module."""
    spec = importlib.util.spec_from_file_location(f"planned_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(case: Case, engine: espalier.Engine, model: str | Path | None) -> Row:
    """Records, measures and plans one program."""
    module = load_example(case.example)
    espalier.set_default_backend(engine)
    try:
        program: SglFunction = getattr(module, case.program)
        items = [
            item if isinstance(item, (list, tuple)) else (item,) for item in case.items(module)
        ]
        if case.example == "multi_turn":
            items = [(module.QUESTIONS,)]
    finally:
        espalier.set_default_backend(None)
    recorder = RecordingBackend(engine.endpoint)
    options = dict(case.options)
    # In one batch of one at a time, so that each item has the same seeds as when it is measured.
    program.run_batch(items, backend=recorder, num_threads=1, use_thread=False, **options)
    engine.flush_cache()
    with espalier.record_usage() as log:
        program.run_batch(items, backend=engine, **options)
    engine.flush_cache()
    plan = program.plan(items, model=model, **recorder.recorded.stated(case.texts_of), **options)
    return Row(
        f"{case.example}: {case.program}",
        log.usage.prompt_tokens,
        plan.total.prompt_tokens,
        log.usage.computed_tokens,
        plan.total.computed_tokens,
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as text."""
    lines = [f"{'program':32}{'prompt':>9}{'planned':>9}{'computed':>10}{'planned':>9}{'error':>9}"]
    lines += [
        f"{row.program:32}{row.prompt_tokens:9,}{row.planned_prompt_tokens:9,}"
        f"{row.computed_tokens:10,}{row.planned_computed_tokens:9,}{row.error:9.2%}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Compares every program and prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="alias or path; the default model where left out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with espalier.Engine(options.model) as engine:
        rows = [compare(case, engine, options.model) for case in CASES]
    if options.json:
        print_report(
            {
                row.program: {
                    "computed_tokens": row.computed_tokens,
                    "planned_computed_tokens": row.planned_computed_tokens,
                    "error": round(row.error, 5),
                }
                for row in rows
            },
            True,
        )
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
