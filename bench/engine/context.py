"""What one more token costs as the context grows, for Espalier and peers.

    python bench/engine/context.py --plot context.png

One row decodes after prompts of 128 to 8,000 tokens; the prompt is cached and not in the clock. The
report has the least-squares line through Espalier's figures and the largest distance from it: a
step that grows linearly in context stays near the line, a cliff does not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.engine.compare import chosen_peers, prompts_of
from bench.engine.line import LEAST_POINTS, line_fit
from bench.engine.options import positive, positives, rounds_parser
from bench.engine.plots import draw, plot_contexts, require_matplotlib
from bench.engine.prompts import bench_text
from bench.engine.rounds import run_rounds
from bench.engine.summary import Comparison, problems
from bench.engine.workloads import Workload
from bench.peers.catalog import ESPALIER, SMOLLM2
from bench.report import print_report

CONTEXTS = (128, 256, 512, 1000, 1500, 2000, 3000, 4000, 5000, 6000, 7000, 8000)


class NestedPrompts:
    """Prompts that all begin at one place in a round, so that a longer one reuses a shorter."""

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = list(ids)

    def cut(
        self, work: str, round_number: int, rows: int, length: int, shared: int
    ) -> list[list[int]]:
        """One prompt; the other arguments are those of Prompts.cut.

        Raises ValueError where the text is not longer than the prompt.
        """
        assert rows == 1
        assert shared == 0
        if length >= len(self._ids):
            raise ValueError(f"the text has {len(self._ids)} tokens; over {length} are needed.")
        start = round_number * 1000 % (len(self._ids) - length)
        return [self._ids[start : start + length]]


def costs_ms(comparisons: Sequence[Comparison], name: str) -> tuple[list[float], list[float]]:
    """Contexts, and milliseconds per token there, of one peer."""
    contexts, costs = [], []
    for one in comparisons:
        rate = one.figures[name].median if name in one.figures else None
        if rate is not None:
            contexts.append(float(one.work.context))
            costs.append(1000 / rate)
    return contexts, costs


def text_report(
    lines: Mapping[str, tuple[list[float], list[float]]], comparisons: Sequence[Comparison]
) -> str:
    """Costs, the reasons for those that are missing, and the line through Espalier's."""
    found = [
        f"{name:13} context {context:6.0f} {cost:8.2f} ms per token"
        for name, (contexts, costs) in lines.items()
        for context, cost in zip(contexts, costs, strict=True)
    ]
    line = line_fit(*lines[ESPALIER])
    fitted = (
        f"too few contexts for a line: {LEAST_POINTS} are needed"
        if line is None
        else f"line: {line}, within {line.largest_distance:.0%}"
    )
    return "\n".join([*found, *problems(comparisons), fitted])


def parse_options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Command-line options."""
    parser = rounds_parser(__doc__.splitlines()[0], 3, "none")
    parser.add_argument("--contexts", type=positives, default=list(CONTEXTS))
    parser.add_argument("--decode-tokens", type=positive, default=24)
    return parser.parse_args(given)


def measure_all(options: argparse.Namespace, names: Sequence[str]) -> list[Comparison]:
    """Every context in alternating rounds."""
    workloads = [
        Workload(f"context-{context}", SMOLLM2, 1, context, options.decode_tokens, 0.0)
        for context in options.contexts
    ]
    prompts = prompts_of(SMOLLM2, bench_text(options.text)[0], options.peers_dir, NestedPrompts)
    return run_rounds(names, workloads, {SMOLLM2: prompts}, options)[0]


def main() -> None:
    """Measures every context and prints costs."""
    options = parse_options()
    if options.plot is not None:
        require_matplotlib()
    names = chosen_peers(options.peers, options.peers_dir) if options.peers else [ESPALIER]
    comparisons = measure_all(options, names)
    lines = {name: costs_ms(comparisons, name) for name in names}
    if options.json:
        line = line_fit(*lines[ESPALIER])
        report = {
            "ms_per_token": {name: dict(zip(*lines[name], strict=True)) for name in names},
            "problems": problems(comparisons),
            "line": None if line is None else asdict(line),
        }
        print_report(report, is_json=True)
    else:
        print(text_report(lines, comparisons), flush=True)
    if options.plot is not None:
        draw(lambda: plot_contexts(options.plot, lines))


if __name__ == "__main__":
    main()
