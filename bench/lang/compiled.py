"""Programs compiled and interpreted, in turn, on the local engine: wall time and computed tokens.

    python bench/lang/compiled.py
    python bench/lang/compiled.py --rounds 5 --json

Each round runs every program both ways, from an empty cache. Texts must be equal, or it stops.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.engine.options import positive
from bench.report import print_report

import espalier as sgl

TOKENS = 24
Run = Callable[[], Sequence[Any]]


@sgl.function
def reviews(s: Any, topic: str) -> None:
    """Reads each fork's answer before it asks the next: interpreted, they run in turn."""
    s += "Reviews of " + topic + " by people of different trades.\n"
    trades = ("a farmer", "a nurse", "a sailor", "a baker")
    forks = s.fork(len(trades))
    for fork, trade in zip(forks, trades, strict=True):
        fork.user("Review by " + trade + ":")
        fork.assistant(sgl.gen("review"))
        s += trade + " writes:" + fork["review"] + "\n"
    s += "In short:" + sgl.gen("summary")


@sgl.function
def debate(s: Any, topic: str) -> None:
    """Joins two groups one after the other; nothing of the first is needed for the second."""
    s += "A debate about " + topic + ".\n"
    for side in ("For", "Against"):
        speakers = s.fork(3)
        speakers += lambda i, side=side: f"{side}, speaker {i + 1}:"
        speakers += sgl.gen(side)
        speakers.join()
    s += "Verdict:" + sgl.gen("verdict")


def runs(engine: sgl.Engine, *, compiled: bool) -> Mapping[str, Run]:
    """What to time, by name."""

    def made(program: Any) -> Any:
        return program.compile() if compiled else program

    options: dict[str, Any] = {
        "backend": engine,
        "seed": 1,
        "max_new_tokens": TOKENS,
        "ignore_eos": True,
    }
    first, second = made(reviews), made(debate)
    return {
        "reviews": lambda: [first.run(topic="tea", **options)],
        "debate": lambda: [second.run(topic="tea", **options)],
    }


def timed(engine: sgl.Engine, run: Run) -> tuple[float, int, list[str]]:
    """Seconds, computed tokens and texts of one run from an empty cache."""
    engine.flush_cache()
    start = time.perf_counter()
    states = run()
    texts = [state.text() for state in states]
    took_s = time.perf_counter() - start
    return took_s, sum(state.usage().computed_tokens for state in states), texts


def measure(engine: sgl.Engine, num_rounds: int) -> dict[str, Any]:
    """Medians of rounds, both ways in turn."""
    ways = {False: runs(engine, compiled=False), True: runs(engine, compiled=True)}
    found: dict[str, Any] = {}
    for name in ways[True]:
        times: dict[bool, list[float]] = {False: [], True: []}
        tokens: dict[bool, int] = {}
        texts: dict[bool, list[str]] = {}
        for _ in range(num_rounds):
            for compiled, programs in ways.items():
                took_s, tokens[compiled], texts[compiled] = timed(engine, programs[name])
                times[compiled].append(took_s)
        if texts[True] != texts[False]:
            raise SystemExit(f"{name}: compiled and interpreted texts differ")
        medians = {compiled: statistics.median(values) for compiled, values in times.items()}
        found[name] = {
            "interpreted, ms": round(medians[False] * 1e3, 1),
            "compiled, ms": round(medians[True] * 1e3, 1),
            "interpreted / compiled": round(medians[False] / medians[True], 2),
            "computed tokens, interpreted": tokens[False],
            "computed tokens, compiled": tokens[True],
        }
    return found


def main() -> None:
    """Runs the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=None)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    engine = sgl.Engine() if options.model is None else sgl.Engine(options.model)
    with engine:
        found = measure(engine, options.rounds)
    print_report(found, options.json)


if __name__ == "__main__":
    main()
