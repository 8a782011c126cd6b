"""Time of attention alone, over all layers of a model's geometry, with keys of random rows.

    python bench/engine/attention.py --threads 2 --kv-dtype bf16

Milliseconds per step (the fastest and the median of several) for decode steps with and without a
shared prefix and for prefill.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np
from bench.report import print_report

from espalier.exec import plan as ops
from espalier.exec.executor import ExecutorOptions, RawTensor, StepBatch, TensorType
from espalier.exec.native import NativeExecutor
from espalier.exec.plan import Buffer, Geometry, Plan, WeightSlot

VOCAB = 512


class RandomTensors:
    """Tables of random rows, the same in each run."""

    def __init__(self, plan: Plan) -> None:
        self._shapes = {slot.name: slot.shape for slot in plan.weights}

    def tensor(self, name: str) -> RawTensor:
        """Values of about the size that queries and keys of a model have."""
        shape = self._shapes[name]
        values = np.random.default_rng(len(name)).normal(0, 1.5, shape).astype(np.float32)
        return RawTensor(name, TensorType.F32, shape, values.reshape(-1).view(np.uint8))


def attention_plan(layers: int, heads: int, kv_heads: int, head_dim: int) -> Plan:
    """Writes and attention of every layer, with queries, keys and values from tables."""
    widths = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
    layer_ops: list[ops.Op] = []
    for layer in range(layers):
        layer_ops += [
            ops.KvWrite(layer, "k", "v"),
            ops.Attention(layer, "q", "out", head_dim**-0.5),
        ]
    tables = tuple(WeightSlot(f"table {n}", (VOCAB, w), f"table {n}") for n, w in widths.items())
    head = WeightSlot("head table", (VOCAB, widths["k"]), "head table")
    buffers = {**widths, "out": widths["q"], "last": widths["k"]}
    return Plan(
        "attention alone",
        Geometry(layers, widths["q"], heads, kv_heads, head_dim, VOCAB, 1 << 20),
        tuple(Buffer(name, width) for name, width in buffers.items()),
        (*tables, head),
        (),
        (
            *(ops.Embed(f"table {name}", name) for name in widths),
            *layer_ops,
            ops.SelectRows("k", "last"),
            ops.LmHead("last", "head table"),
        ),
    )


def step(sequences: Sequence[tuple[np.ndarray, int]]) -> StepBatch:
    """A step of (slots, position of the first row) per sequence."""
    rows = [len(slots) - first for slots, first in sequences]
    return StepBatch(
        token_ids=(np.arange(sum(rows)) % VOCAB).astype(np.int32),
        positions=np.concatenate([np.arange(f, len(s)) for s, f in sequences]).astype(np.int32),
        row_starts=np.cumsum([0, *rows]).astype(np.int32),
        slot_ids=np.concatenate([slots for slots, _ in sequences]).astype(np.int32),
        slot_starts=np.cumsum([0, *(len(slots) for slots, _ in sequences)]).astype(np.int32),
        logit_rows=np.zeros(0, np.int32),
    )


def decode(rows: int, shared: int, own: int) -> StepBatch:
    """One row each of sequences with a common prefix and slots of their own behind it."""
    prefix = np.arange(shared)
    first = [shared + i * own for i in range(rows)]
    return step([(np.append(prefix, np.arange(f, f + own)), shared + own - 1) for f in first])


def measure(executor: NativeExecutor, batch: StepBatch, rounds: int) -> dict[str, float]:
    """Milliseconds of a step."""
    executor.run(batch)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        executor.run(batch)
        times.append((time.perf_counter() - start) * 1e3)
    return {"fastest": round(min(times), 3), "median": round(statistics.median(times), 3)}


def main() -> None:
    """Measures every kind of step and prints it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kv-dtype", default="bf16")
    parser.add_argument("--isa", default="auto")
    parser.add_argument("--only", default="", help="only steps whose name has this part")
    parser.add_argument(
        "--shape",
        type=int,
        nargs=4,
        default=(30, 9, 3, 64),
        metavar=("LAYERS", "HEADS", "KV_HEADS", "HEAD_DIM"),
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    plan = attention_plan(*given.shape)
    options = ExecutorOptions(
        num_slots=12288, num_threads=given.threads, kv_dtype=given.kv_dtype, isa=given.isa
    )
    executor = NativeExecutor(plan, RandomTensors(plan), options)
    for first in range(0, 12288, 2048):  # writes every slot
        executor.run(step([(np.arange(first, first + 2048), 0)]))
    cases: dict[str, tuple[StepBatch, int]] = {
        "nothing: 1 row at 1": (decode(1, 0, 1), 40),
        **{f"1 row at {n}": (decode(1, 0, n), 20) for n in (128, 512, 1000, 2000, 4000, 8000)},
        "16 rows at 128": (decode(16, 0, 128), 20),
        "16 rows, 2000 shared + 128": (decode(16, 2000, 128), 20),
        "64 rows, 2000 shared + 128": (decode(64, 2000, 128), 10),
        "prefill 512": (step([(np.arange(512), 0)]), 6),
        "prefill 2048": (step([(np.arange(2048), 0)]), 4),
        "extend 64 at 4000": (step([(np.arange(4000), 3936)]), 6),
    }
    found = {name: measure(executor, *case) for name, case in cases.items() if given.only in name}
    print_report({"isa": executor.isa, "steps, ms": found}, given.json)


if __name__ == "__main__":
    main()
