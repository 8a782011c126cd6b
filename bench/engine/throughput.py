"""Prefill and decode throughput of one engine, in tokens per second.

    python bench/engine/throughput.py --json

Prefill: one prompt of that many random tokens, nothing cached. Decode: that many rows with 128
tokens of context each, sampled greedily, timed from the step after the last prefill. Everything
but the HTTP and language layers is inside the clock: scheduling, the forward pass, sampling.
Each figure is the median of `--rounds` rounds, which alternate over all settings.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np
from bench.report import commit_id, cpu_name

from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.request import EngineRequest, RequestFailure
from espalier.engine.sampler import Sampler
from espalier.exec.executor import ExecutorOptions
from espalier.exec.factory import make_executor
from espalier.loaders.model import LoadedModel, load_model
from espalier.loaders.resolve import resolve_model
from espalier.types import SamplingParams

PREFILL_LENGTHS = (512, 2048)
DECODE_ROWS = (1, 4, 16, 64)
DECODE_CONTEXT = 128


def make_core(model: LoadedModel, options: argparse.Namespace) -> EngineCore:
    """An engine with room for the largest setting."""
    engine_options = EngineOptions(
        num_slots=64 * (DECODE_CONTEXT + options.decode_steps + 16) + 4096,
        context_length=min(4096, model.plan.geometry.max_context),
        max_running_requests=64,
    )
    executor = make_executor(
        options.executor,
        model.plan,
        model.weights,
        ExecutorOptions(
            num_slots=engine_options.num_slots,
            weights=options.weights,
            num_threads=options.threads,
            max_rows=engine_options.max_step_rows,
        ),
    )
    sampler = Sampler(model.plan.geometry.vocab_size)
    return EngineCore(executor, model.tokenizer, sampler, engine_options)


class Bench:
    """Runs rounds on one engine; every prompt is new, so nothing is ever cached."""

    def __init__(self, core: EngineCore, vocab_size: int) -> None:
        self._core = core
        self._vocab_size = vocab_size
        self._random = np.random.default_rng(0)
        self._num_requests = 0

    def _add(self, prompt_len: int, num_new: int) -> None:
        ids = self._random.integers(256, self._vocab_size, prompt_len)
        sampling = SamplingParams(temperature=0.0, max_new_tokens=num_new, ignore_eos=True)
        self._num_requests += 1
        self._core.add_request(
            EngineRequest(f"bench-{self._num_requests}", tuple(map(int, ids)), sampling)
        )

    def _step(self) -> None:
        for event in self._core.step():
            if isinstance(event, RequestFailure):
                raise event.error

    def prefill(self, length: int) -> float:
        """Tokens per second of one prompt, until its first token."""
        self._core.flush_cache()
        self._add(length, 1)
        start = time.perf_counter()
        while self._core.has_work:
            self._step()
        return length / (time.perf_counter() - start)

    def decode(self, num_rows: int, num_steps: int) -> float:
        """Tokens per second of all rows together."""
        self._core.flush_cache()
        for _ in range(num_rows):
            self._add(DECODE_CONTEXT, num_steps + num_rows + 8)
        while self._step_tokens() != num_rows:
            pass
        before = self._generated_tokens
        start = time.perf_counter()
        for _ in range(num_steps):
            self._step()
        seconds = time.perf_counter() - start
        generated = self._generated_tokens - before
        if generated != num_rows * num_steps:
            raise RuntimeError(f"{generated} tokens in {num_steps} steps of {num_rows} rows")
        while self._core.has_work:
            self._step()
        return generated / seconds

    @property
    def _generated_tokens(self) -> int:
        return self._core.stats().totals.generated_tokens

    def _step_tokens(self) -> int:
        """Runs a step and returns its tokens; 0 while prompt rows were in it."""
        totals = self._core.stats().totals
        self._step()
        after = self._core.stats().totals
        generated = after.generated_tokens - totals.generated_tokens
        return generated if after.computed_rows - totals.computed_rows == generated else 0


def parse_options() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None, help="alias, file or folder (default: smollm2)")
    parser.add_argument("--executor", default="native")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decode-steps", type=int, default=48)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def main() -> None:
    """Runs all settings in alternating rounds and prints medians."""
    options = parse_options()
    model = load_model(resolve_model(options.model))
    core = make_core(model, options)
    bench = Bench(core, model.plan.geometry.vocab_size)
    prefill: dict[str, list[float]] = {str(length): [] for length in PREFILL_LENGTHS}
    decode: dict[str, list[float]] = {str(rows): [] for rows in DECODE_ROWS}
    bench.prefill(64)  # threads and pages warm
    for _ in range(options.rounds):
        for length in PREFILL_LENGTHS:
            prefill[str(length)].append(bench.prefill(length))
        for rows in DECODE_ROWS:
            decode[str(rows)].append(bench.decode(rows, options.decode_steps))
    result = {
        "prefill_tok_s": {key: round(statistics.median(v), 1) for key, v in prefill.items()},
        "decode_tok_s": {key: round(statistics.median(v), 1) for key, v in decode.items()},
        "commit": commit_id(),
        "cpu": cpu_name(),
        "model": model.name,
        "weights": options.weights,
        "python": platform.python_version(),
    }
    core.close()
    if options.json:
        print(json.dumps(result))
        return
    for key in ("prefill_tok_s", "decode_tok_s"):
        for setting, rate in result[key].items():
            print(f"{key.split('_')[0]:8} {setting:>5} {rate:>10.1f} tokens/s")
    print(result["cpu"], result["commit"], file=sys.stderr)


if __name__ == "__main__":
    main()
