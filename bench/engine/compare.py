"""Espalier and its peers side by side, in alternating rounds of one run.

    python bench/engine/compare.py --json

Peers are those that scripts/bench-peers has installed. All read the same prompts, as token ids,
and decode greedily. Each is a process of its own that measures its own calls; while one works, the
others are frozen. A figure is the median of `--rounds` rounds, in tokens per second. The prompt is
never in the clock of a decode figure: it is the time of N + 1 tokens minus that of 1 token.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.engine.options import rounds_parser
from bench.engine.plots import draw, plot_comparisons, require_matplotlib
from bench.engine.prompts import NoPrompts, Prompts, PromptSource, bench_text
from bench.engine.rounds import run_rounds
from bench.engine.summary import table
from bench.engine.workloads import WORKLOADS, Workload
from bench.peers.catalog import ESPALIER, PEERS, python_of
from bench.peers.models import model_path
from bench.report import commit_id, cpu_name, print_report

from espalier.errors import EspalierError
from espalier.loaders.model import load_model


def parse_options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Command-line options."""
    parser = rounds_parser(__doc__.splitlines()[0], 5, "all that are installed")
    parser.add_argument("--work", help="names or their beginnings, separated by commas")
    parser.add_argument("--quick", action="store_true", help="one round, fewer tokens")
    return parser.parse_args(given)


def chosen_work(given: str | None, is_quick: bool) -> list[Workload]:
    """The workloads that `--work` names; exits where a name fits none."""
    found = list(WORKLOADS)
    if given is not None:
        starts = given.split(",")
        known = ", ".join(work.name for work in WORKLOADS)
        for start in starts:
            if not any(work.name.startswith(start) for work in WORKLOADS):
                raise SystemExit(f"--work {start!r} fits none of {known}.")
        exact = {work.name for work in WORKLOADS} & set(starts)
        found = [
            work
            for work in WORKLOADS
            if work.name in exact
            or any(work.name.startswith(start) for start in starts if start not in exact)
        ]
    return [_shortened(work) for work in found] if is_quick else found


def _shortened(work: Workload) -> Workload:
    return work if work.is_prefill else replace(work, num_tokens=max(8, work.num_tokens // 4))


def chosen_peers(given: str | None, folder: Path) -> list[str]:
    """Names of the peers to run, Espalier first; exits where one is unknown or not installed."""
    if given is None:
        return [name for name, peer in PEERS.items() if python_of(peer, folder) is not None]
    names = list(dict.fromkeys([ESPALIER, *given.split(",")]))
    for name in names:
        if name not in PEERS:
            raise SystemExit(f"--peers {name!r} is unknown; known are {', '.join(PEERS)}.")
        if python_of(PEERS[name], folder) is None:
            raise SystemExit(
                f"{name} is not installed in {folder}: run `scripts/bench-peers {name}`."
            )
    return names


def prompts_of(
    model: str,
    text: str,
    peers_dir: Path,
    kind: Callable[[list[int]], PromptSource] = Prompts,
) -> PromptSource:
    """Prompts for a model, cut from the text; every cut fails where its file cannot be read."""
    try:
        tokenizer = load_model(model_path(model, True, peers_dir)).tokenizer
    except (EspalierError, OSError) as error:
        return NoPrompts(f"the tokenizer of {model} cannot be read: {error}")
    return kind(tokenizer.encode(text))


def main() -> None:
    """Runs the chosen work and prints a table or JSON."""
    options = parse_options()
    if options.plot is not None:
        require_matplotlib()
    if options.quick:
        options.rounds = 1
    workloads = chosen_work(options.work, options.quick)
    names = chosen_peers(options.peers, options.peers_dir)
    text, text_name = bench_text(options.text)
    models = sorted({work.model for work in workloads})
    prompts = {model: prompts_of(model, text, options.peers_dir) for model in models}
    comparisons, facts = run_rounds(names, workloads, prompts, options)
    if options.json:
        report = {
            "work": [one.as_json() for one in comparisons],
            "peers": facts,
            "threads": options.threads,
            "text": text_name,
            "python": platform.python_version(),
        }
        print_report(report, is_json=True)
    else:
        print(table(comparisons, names), flush=True)
        print(cpu_name(), commit_id(), file=sys.stderr)
    if options.plot is not None:
        draw(lambda: plot_comparisons(options.plot, comparisons, names))


if __name__ == "__main__":
    main()
