"""Time of a plan of many rows of few-shot programs, tokenizer and report included.

    python bench/plan/rows.py [--rows N] [--model PATH] [--json]

Seconds, and milliseconds of a row: `extract` makes three generations, `classify` one selection.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.plan.accuracy import load_example
from bench.report import print_report


def sentences(count: int) -> list[dict[str, str]]:
    """Rows that have little in common but their form."""
    return [
        {"sentence": f"In {1800 + i % 200} number {i} moved to the city of {i * 7919 % 10007}."}
        for i in range(count)
    ]


def main() -> None:
    """Plans each program and prints the times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--model", help="alias or path; the default model where left out")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    example = load_example("few_shot")
    rows = sentences(options.rows)
    result = {}
    for program in (example.extract, example.classify):
        start = time.perf_counter()
        plan = program.plan(rows, model=options.model)
        planned_s = time.perf_counter() - start
        with tempfile.TemporaryDirectory() as folder:
            plan.write_report(Path(folder) / "plan.html")
        result[plan.program] = {
            "rows": options.rows,
            "requests": plan.total.requests,
            "plan_s": round(planned_s, 2),
            "ms_per_row": round(planned_s / options.rows * 1e3, 3),
            "report_s": round(time.perf_counter() - start - planned_s, 2),
        }
    print_report(result, options.json)


if __name__ == "__main__":
    main()
