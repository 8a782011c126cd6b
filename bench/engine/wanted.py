"""What the LM head costs where few tokens are allowed, against the whole of it.

    python bench/engine/wanted.py
    python bench/engine/wanted.py --model gemma3-270m --rows 1 16 --json

Decode steps of sequences with 128 tokens each, whose rows want 1 to 1024 random tokens. Rows of a
step want tokens of their own ("each"), the same ones ("same"), or every second row wants all
tokens ("half"). Times are the least of some rounds: those of the whole step, and of the LM head.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np
from bench.engine.options import model_parser
from bench.engine.profile import CONTEXT, batch_of, profile_step
from bench.report import commit_id, cpu_name, print_report

from espalier.exec.executor import ExecutorOptions, Int32Array, StepBatch
from espalier.exec.native import NativeExecutor
from espalier.loaders.model import LoadedModel, load_model
from espalier.loaders.resolve import resolve_model

COUNTS = (1, 8, 64, 128, 256, 512, 1024)
ROUNDS, STEPS_PER_ROUND = 4, 6


def wanting(batch: StepBatch, wanted: Sequence[Int32Array]) -> StepBatch:
    """The step with the tokens that each row of its logits wants; none for all."""
    starts = np.cumsum([0] + [len(ids) for ids in wanted]).astype(np.int32)
    return replace(batch, wanted_starts=starts, wanted_ids=np.concatenate(wanted))


def cases(batch: StepBatch, vocab_size: int) -> dict[str, StepBatch]:
    """The step of whole logits, and those that want less."""
    random = np.random.default_rng(0)
    num_rows = len(batch.logit_rows)
    every = np.zeros(0, np.int32)
    found = {"whole": batch}
    for count in COUNTS:
        ids = [
            np.sort(random.choice(vocab_size, count, replace=False)).astype(np.int32)
            for _ in range(num_rows)
        ]
        found[f"{count} each"] = wanting(batch, ids)
        if num_rows > 1:
            found[f"{count} same"] = wanting(batch, ids[:1] * num_rows)
            some = [ids[row] if row % 2 else every for row in range(num_rows)]
            found[f"{count} half"] = wanting(batch, some)
    return found


def times_of(executor: NativeExecutor, batch: StepBatch) -> tuple[float, float]:
    """Milliseconds of a step and of its LM head."""
    step, *entries = profile_step(executor, batch, STEPS_PER_ROUND)
    head_s = sum(entry.seconds for entry in entries if entry.name.startswith("lm_head"))
    return step.seconds * 1e3, head_s * 1e3


def run(model: LoadedModel, options: argparse.Namespace) -> dict[str, Any]:
    """All cases in turn, some rounds of them, and the least times."""
    executor = NativeExecutor(
        model.plan,
        model.weights,
        ExecutorOptions(
            num_slots=max(options.rows) * (CONTEXT + 1),
            weights=options.weights,
            num_threads=options.threads,
            isa=options.isa,
        ),
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    for num_rows in options.rows:
        steps = cases(batch_of(num_rows, CONTEXT, CONTEXT + 1), model.plan.geometry.vocab_size)
        rounds = [
            {name: times_of(executor, step) for name, step in steps.items()} for _ in range(ROUNDS)
        ]
        found[str(num_rows)] = {
            name: {
                "step_ms": round(min(times[name][0] for times in rounds), 3),
                "head_ms": round(min(times[name][1] for times in rounds), 3),
            }
            for name in steps
        }
    threads = executor.thread_pool.num_threads
    return {"model": model.name, "isa": executor.isa, "threads": threads, "rows": found}


def main() -> None:
    """Measures everything and prints it."""
    parser = model_parser(__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16])
    options = parser.parse_args()
    result = run(load_model(resolve_model(options.model)), options)
    if options.json:
        print_report(result, is_json=True)
        return
    print(f"{result['model']}, {result['isa']}, {result['threads']} threads")
    for num_rows, steps in result["rows"].items():
        print(f"\n{num_rows} rows{'step ms':>18}{'head ms':>10}")
        for name, times in steps.items():
            print(f"  {name:14}{times['step_ms']:10.3f}{times['head_ms']:10.3f}")
    print(cpu_name(), commit_id(), file=sys.stderr)


if __name__ == "__main__":
    main()
