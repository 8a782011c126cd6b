"""What one more token costs as the context grows, for Espalier and peers.

    python bench/engine/context.py --plot context.png

One row decodes after prompts of 128 to 8,000 tokens; the prompt is cached and not in the clock. The
report has the least-squares line through Espalier's figures and the largest distance from it: a
step that grows linearly in context stays near the line, a cliff does not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np
from bench.engine.compare import chosen_peers
from bench.engine.plots import draw, plot_lines, require_matplotlib
from bench.engine.prompts import bench_text
from bench.engine.rounds import Runner
from bench.engine.summary import Comparison
from bench.engine.throughput import commit_id, cpu_name
from bench.engine.workloads import Workload
from bench.peers.catalog import ESPALIER, SMOLLM2, default_folder
from bench.peers.models import model_path

from espalier.loaders.model import load_model

CONTEXTS = (128, 256, 512, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000)


class NestedPrompts:
    """Prompts that all begin at one place in a round, so that a longer one reuses a shorter."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)

    def cut(
        self, work: str, round_number: int, rows: int, length: int, shared: int
    ) -> list[list[int]]:
        """One prompt; the other arguments are those of Prompts.cut."""
        assert rows == 1
        assert shared == 0
        start = round_number * 1000 % (len(self._ids) - length)
        return [self._ids[start : start + length]]


def line_fit(contexts: Sequence[float], costs: Sequence[float]) -> tuple[float, float, float]:
    """Slope and start of the least-squares line, and the largest relative distance from it."""
    slope, start = np.polyfit(contexts, costs, 1)
    fitted = slope * np.asarray(contexts) + start
    worst = np.max(np.abs(np.asarray(costs) - fitted) / fitted)
    return float(slope), float(start), float(worst)


def costs_ms(comparisons: Sequence[Comparison], name: str) -> tuple[list[float], list[float]]:
    """Contexts, and milliseconds per token there, of one peer."""
    contexts, costs = [], []
    for one in comparisons:
        rate = one.figures[name].median if name in one.figures else None
        if rate is not None:
            contexts.append(float(one.work.context))
            costs.append(1000 / rate)
    return contexts, costs


def parse_options() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="", help="names, separated by commas (default: none)")
    parser.add_argument("--contexts", default=",".join(map(str, CONTEXTS)))
    parser.add_argument("--decode-tokens", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peers-dir", type=Path, default=default_folder())
    parser.add_argument("--text", type=Path, help="text that prompts are cut from")
    parser.add_argument("--plot", type=Path, help="PNG file to write")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def main() -> None:
    """Measures every context in alternating rounds and prints costs."""
    options = parse_options()
    if options.plot is not None:
        require_matplotlib()
    names = chosen_peers(options.peers, options.peers_dir) if options.peers else [ESPALIER]
    workloads = [
        Workload(f"context-{context}", SMOLLM2, 1, context, options.decode_tokens, 0.0)
        for context in map(int, options.contexts.split(","))
    ]
    tokenizer = load_model(model_path(SMOLLM2, True, options.peers_dir)).tokenizer
    prompts = NestedPrompts(tokenizer.encode(bench_text(options.text)[0]))
    runner = Runner(
        options.peers_dir,
        lambda model, gguf: model_path(model, gguf, options.peers_dir),
        options.threads,
    )
    try:
        comparisons = runner.run(names, workloads, {SMOLLM2: prompts}, options.rounds)
    finally:
        runner.close()
    lines = {name: costs_ms(comparisons, name) for name in names}
    slope, start, worst = line_fit(*lines[ESPALIER])
    report = {
        "ms_per_token": {name: dict(zip(*lines[name], strict=True)) for name in names},
        "line": {"ms_at_0": start, "ms_per_1000_tokens": 1000 * slope, "largest_distance": worst},
        "commit": commit_id(),
        "cpu": cpu_name(),
    }
    if options.json:
        print(json.dumps(report), flush=True)
    else:
        for name, (contexts, costs) in lines.items():
            for context, cost in zip(contexts, costs, strict=True):
                print(f"{name:13} context {context:6.0f} {cost:8.2f} ms per token")
        print(f"line: {start:.2f} ms + {1000 * slope:.2f} ms per 1,000 tokens, within {worst:.0%}")
    if options.plot is not None:
        draw(lambda: plot_lines(options.plot, lines, "context, tokens", "one decoded token, ms"))


if __name__ == "__main__":
    main()
