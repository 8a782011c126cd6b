"""Where a step's time goes: each operation against the measured limits of this machine.

    python bench/engine/profile.py
    python bench/engine/profile.py --model gemma3-270m --weights int8 --json

Limits are measured in the same run: bandwidth of reading a block as large as the weights, and
multiplications out of registers. `of limit` is the time that the slower of the two would need at
its limit, by the time that was needed. Activations have 15 bits: in AMX tiles each product is two
products of bytes, so the limit of a product is half of that of the tiles.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np
from bench.engine.options import model_parser
from bench.report import commit_id, cpu_name, print_report

from espalier._native import ThreadPool, multiply_rates, read_bandwidth
from espalier.exec.executor import ExecutorOptions, StepBatch
from espalier.exec.native import NativeExecutor, OpTime
from espalier.exec.processors import usable_processors
from espalier.loaders.model import LoadedModel, load_model
from espalier.loaders.resolve import resolve_model

CONTEXT = 128
DECODE_ROWS = (1, 16, 64)
PREFILL_ROWS = (512, 2048)
BOUND = ("linear", "lm_head", "attention")  # operations that memory or products bound


@dataclass(frozen=True, slots=True)
class Limits:
    """What the machine can do: GB/s by threads, and G multiply-adds/s by instructions."""

    threads: int
    weight_mb: float
    read_gb_per_s: dict[str, float]
    multiply_g_per_s: dict[str, float]

    @property
    def bytes_per_s(self) -> float:
        """With all threads."""
        return 1e9 * self.read_gb_per_s[f"{self.threads} threads"]

    @property
    def products_per_s(self) -> float:
        """Of a weight with an activation, with the fastest instructions."""
        rates = self.multiply_g_per_s.items()
        return 1e9 * max(rate / (2 if name.startswith("int8") else 1) for name, rate in rates)


def measure_limits(threads: int, weight_bytes: int) -> Limits:
    """Both limits, on one thread and on all."""
    processors = usable_processors()
    pools = {count: ThreadPool(count, processors) for count in sorted({1, threads})}
    return Limits(
        threads=threads,
        weight_mb=round(weight_bytes / 1e6, 1),
        read_gb_per_s={
            f"{count} threads": round(read_bandwidth(pool, weight_bytes) / 1e9, 1)
            for count, pool in pools.items()
        },
        multiply_g_per_s={
            name: round(rate / 1e9, 1) for name, rate in multiply_rates(pools[threads])
        },
    )


def batch_of(num_sequences: int, start: int, end: int) -> StepBatch:
    """Rows at positions start to end - 1 of sequences that share nothing; one asks for logits."""
    random = np.random.default_rng(0)
    num_rows = end - start
    starts = np.arange(num_sequences + 1, dtype=np.int32)
    return StepBatch(
        token_ids=random.integers(5, 30_000, num_sequences * num_rows).astype(np.int32),
        positions=np.tile(np.arange(start, end, dtype=np.int32), num_sequences),
        row_starts=starts * np.int32(num_rows),
        slot_ids=np.arange(num_sequences * end, dtype=np.int32),
        slot_starts=starts * np.int32(end),
        logit_rows=(starts[1:] * np.int32(num_rows) - np.int32(1)).astype(np.int32),
    )


def profile_step(executor: NativeExecutor, batch: StepBatch, rounds: int) -> list[OpTime]:
    """The same step again and again; slots that were not written hold zeros, which cost the same.

    Times are those of one step.
    """
    executor.run(batch)
    executor.start_profile()
    for _ in range(rounds):
        executor.run(batch)
    return [
        OpTime(
            entry.name,
            entry.calls // rounds,
            entry.seconds / rounds,
            entry.num_bytes // rounds,
            entry.multiply_adds // rounds,
        )
        for entry in executor.take_profile()
    ]


def report(times: list[OpTime], limits: Limits) -> dict[str, Any]:
    """One step against the limits, the costliest operation first."""
    step, *ops = times
    bound_s = sum(entry.seconds for entry in ops if entry.name.startswith(BOUND))
    rows = []
    for entry in sorted(ops, key=lambda entry: -entry.seconds):
        least_s = max(
            entry.num_bytes / limits.bytes_per_s, entry.multiply_adds / limits.products_per_s
        )
        seconds = max(entry.seconds, 1e-9)
        rows.append(
            {
                "op": entry.name,
                "calls": entry.calls,
                "ms": round(entry.seconds * 1e3, 3),
                "share": round(entry.seconds / step.seconds, 3),
                "gb_per_s": round(entry.num_bytes / seconds / 1e9, 1),
                "gflop_per_s": round(2 * entry.multiply_adds / seconds / 1e9, 1),
                "of_limit": round(least_s / seconds, 2),
            }
        )
    return {
        "step_ms": round(step.seconds * 1e3, 3),
        "share_in_bound_loops": round(bound_s / step.seconds, 3),
        "ops": rows,
    }


def run(model: LoadedModel, options: argparse.Namespace) -> dict[str, Any]:
    """Profiles of all steps."""
    num_slots = max(max(DECODE_ROWS) * (CONTEXT + 1), *PREFILL_ROWS)
    executor = NativeExecutor(
        model.plan,
        model.weights,
        ExecutorOptions(
            num_slots=num_slots,
            weights=options.weights,
            kv_dtype=options.kv_dtype,
            num_threads=options.threads,
            isa=options.isa,
            max_rows=max(PREFILL_ROWS),
        ),
    )
    limits = measure_limits(executor.thread_pool.num_threads, executor.memory_bytes()["weights"])
    steps = {
        f"decode, {rows} rows": (batch_of(rows, CONTEXT, CONTEXT + 1), 40) for rows in DECODE_ROWS
    }
    steps |= {f"prefill of {rows}": (batch_of(1, 0, rows), 3) for rows in PREFILL_ROWS}
    found = {
        name: report(profile_step(executor, batch, rounds), limits)
        for name, (batch, rounds) in steps.items()
    }
    loop_us = round(executor.thread_pool.loop_seconds(5_000, 12) * 1e6, 2)
    return {
        "model": model.name,
        "isa": executor.isa,
        "limits": asdict(limits),
        "empty_loop_us": loop_us,
        "steps": found,
    }


def print_tables(result: dict[str, Any]) -> None:
    """The same for people."""
    limits = result["limits"]
    print(f"{result['model']}, {result['isa']}, {limits['threads']} threads")
    print(f"reading {limits['weight_mb']} MB: {limits['read_gb_per_s']} GB/s")
    print(f"multiply-adds, G/s: {limits['multiply_g_per_s']}")
    print(f"an empty loop of 12 chunks: {result['empty_loop_us']} us")
    for name, step in result["steps"].items():
        share = step["share_in_bound_loops"]
        print(f"\n{name}: {step['step_ms']} ms, {share:.0%} in loops that memory or products bound")
        print(
            f"{'op':44}{'calls':>6}{'ms':>9}{'share':>7}{'GB/s':>7}{'GFLOP/s':>9}{'of limit':>10}"
        )
        for row in step["ops"]:
            print(
                f"{row['op']:44}{row['calls']:6}{row['ms']:9.3f}{row['share']:7.1%}"
                f"{row['gb_per_s']:7.1f}{row['gflop_per_s']:9.1f}{row['of_limit']:10.0%}"
            )


def main() -> None:
    """Measures everything and prints it."""
    parser = model_parser(__doc__.splitlines()[0])
    parser.add_argument("--kv-dtype", default="auto")
    options = parser.parse_args()
    result = run(load_model(resolve_model(options.model)), options)
    if options.json:
        print_report(result, is_json=True)
    else:
        print_tables(result)
        print(cpu_name(), commit_id(), file=sys.stderr)


if __name__ == "__main__":
    main()
