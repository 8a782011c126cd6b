"""Processor time of what surrounds the forward pass: tree, step, sampler, tokenizer.

    python bench/engine/parts.py
    python bench/engine/parts.py --model gemma3-270m --json

Times are medians of processor time (time.process_time) on one thread, unless they say otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np
from bench.report import print_report
from numpy.typing import NDArray

from espalier._native import ThreadPool
from espalier.engine.async_engine import AsyncEngine
from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.radix_cache import RadixCache
from espalier.engine.radix_node import PrefixCursor
from espalier.engine.request import EngineRequest
from espalier.engine.sampler import Sampler
from espalier.engine.sampler_rows import SampledToken, SampleRow
from espalier.exec.executor import Float32Array, StepBatch
from espalier.exec.plan import Plan
from espalier.exec.processors import usable_processors
from espalier.loaders.model import LoadedModel, load_model
from espalier.loaders.resolve import resolve_model
from espalier.runtime import Engine
from espalier.types import SamplingParams

GREEDY = SamplingParams(temperature=0.0, max_new_tokens=400, ignore_eos=True)
WARM = SamplingParams(temperature=0.8)
NUCLEUS = SamplingParams(temperature=0.8, top_p=0.95)
PENALISED = SamplingParams(temperature=0.0, frequency_penalty=0.5)
TOP_50 = SamplingParams(temperature=0.8, top_p=0.95, top_k=50)
TREE_PATHS, TREE_DEPTH, EDGE_TOKENS = 1_000, 11, 90


def median_s(action: Callable[[], Any], rounds: int) -> float:
    """Median processor time of one call, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return statistics.median(times)


class NullExecutor:
    """Computes nothing: the same zeros for every row."""

    isa = "auto"
    thread_pool: None = None

    def __init__(self, plan: Plan, num_slots: int) -> None:
        self.plan, self.num_slots = plan, num_slots
        self._logits: Float32Array = np.zeros((1, 1), np.float32)

    def run(self, batch: StepBatch) -> Float32Array:
        """A row of one logit for each row that wants logits."""
        return np.broadcast_to(self._logits, (len(batch.logit_rows), 1))

    def memory_bytes(self) -> dict[str, int]:
        """Nothing is held."""
        return {"weights": 0, "kv_pool": 0, "scratch": 0}

    def close(self) -> None:
        """Nothing to free."""


class NullSampler:
    """Always takes the same token."""

    def sample(self, _: Float32Array, rows: list[SampleRow]) -> list[SampledToken]:
        """One token a row."""
        return [SampledToken(1000, 0.0, (), ())] * len(rows)

    def token_logprobs(self, *_: Any) -> list[SampledToken]:
        """Not asked for here."""
        raise AssertionError


def idle_core(model: LoadedModel) -> EngineCore:
    """An engine with everything but a forward pass and a sampler."""
    options = EngineOptions(num_slots=65_536, context_length=1024, chunk_tokens=16_384)
    executor = NullExecutor(model.plan, options.num_slots)
    return EngineCore(executor, model.tokenizer, NullSampler(), options)  # type: ignore[arg-type]


def requests_of(num_rows: int) -> list[EngineRequest]:
    """Requests that run side by side and share nothing."""
    return [
        EngineRequest(f"{row}", tuple(range(row * 200, row * 200 + 128)), GREEDY)
        for row in range(num_rows)
    ]


def step_times(model: LoadedModel) -> dict[str, float]:
    """Milliseconds of a decode step without executor and sampler, by rows."""
    found = {}
    for num_rows in (1, 16, 64):
        core = idle_core(model)
        for request in requests_of(num_rows):
            core.add_request(request)
        for _ in range(8):
            core.step()
        found[f"{num_rows} rows"] = round(median_s(core.step, 300) * 1e3, 3)
        core.close()
    return found


async def _drain(engine: AsyncEngine, request: EngineRequest) -> None:
    async for _ in engine.stream(request):
        pass


async def _run_all(engine: AsyncEngine, num_rows: int, is_streamed: bool) -> None:
    run = partial(_drain, engine) if is_streamed else engine.generate
    await asyncio.gather(*(run(request) for request in requests_of(num_rows)))


def delivery_times(model: LoadedModel) -> dict[str, float]:
    """Milliseconds of a step with the engine's thread and an event loop, both sides together."""
    found = {}
    for num_rows in (1, 64):
        for name, is_streamed in (("", False), (", streamed", True)):
            core = idle_core(model)
            engine = AsyncEngine(core)
            asyncio.run(_run_all(engine, num_rows, is_streamed))  # warm
            engine.flush_cache()
            num_steps, start = engine.stats().totals.steps, time.process_time()
            asyncio.run(_run_all(engine, num_rows, is_streamed))
            passed = time.process_time() - start
            found[f"{num_rows} rows{name}"] = round(
                passed / (engine.stats().totals.steps - num_steps) * 1e3, 3
            )
            engine.shutdown()
    return found


def tree_times() -> dict[str, float]:
    """Microseconds of operations on a tree of about a million tokens in 11,000 nodes."""
    cache, random = RadixCache(), np.random.default_rng(0)
    paths: list[NDArray[np.int32]] = []
    next_slot = 0
    for _ in range(TREE_PATHS):
        ids = random.integers(0, 50_000, TREE_DEPTH * EDGE_TOKENS).astype(np.int32)
        for depth in range(1, TREE_DEPTH + 1):  # a branch at each depth makes a node there
            branch = np.append(ids[: depth * EDGE_TOKENS], np.int32(60_000 + depth))
            match = cache.match("", branch, len(branch))
            cache.lock(match.node)
            slots = np.arange(next_slot, next_slot + len(branch), dtype=np.int32)
            next_slot += len(branch) - match.node.end
            cache.unlock(cache.insert(match.node, branch, slots).node)
        paths.append(ids)
    cursor = PrefixCursor("", paths[0], TREE_DEPTH * EDGE_TOKENS)
    cache.peek(cursor)

    def match_all() -> None:
        for ids in paths[:100]:
            node = cache.match("", ids, len(ids)).node
            cache.lock(node)
            cache.unlock(node)

    num_tokens = cache.num_evictable
    matched = median_s(match_all, 20) / 100
    peeked = median_s(lambda: [cache.peek(cursor) for _ in range(1000)], 20) / 1000
    start = time.process_time()
    while cache.num_evictable > num_tokens // 2:
        cache.evict(1)
    evicted = (time.process_time() - start) / (num_tokens - num_tokens // 2)
    return {
        "tokens": num_tokens,
        "peek again": round(peeked * 1e6, 2),
        "match, lock, unlock, per node": round(matched * 1e6 / TREE_DEPTH, 2),
        "evict one token": round(evicted * 1e6, 2),
    }


def sampler_times(vocab_size: int) -> dict[str, float]:
    """Microseconds per row of a batch of 16, on one thread."""
    sampler = Sampler(vocab_size)
    random = np.random.default_rng(0)
    flat = random.normal(0, 1, (16, vocab_size)).astype(np.float32)
    logits = 4 * flat
    half = random.integers(0, 2**32, (vocab_size + 31) // 32, dtype=np.uint32)
    seen = random.integers(0, vocab_size, 500).astype(np.int32)
    logits[:, :20] += 20  # as after most texts: a few tokens hold nearly everything
    kinds = {
        "greedy": (logits, SampleRow(GREEDY, 0, 10, (), ())),
        "greedy, logprob": (logits, SampleRow(GREEDY, 0, 10, (), (), want_logprob=True)),
        "temperature": (logits, SampleRow(WARM, 0, 10, (), ())),
        "temperature, top_p": (logits, SampleRow(NUCLEUS, 0, 10, (), ())),
        "temperature, top_k 50, top_p": (logits, SampleRow(TOP_50, 0, 10, (), ())),
        "temperature, top_p, flat": (flat, SampleRow(NUCLEUS, 0, 10, (), ())),
        "greedy, half of all masked": (logits, SampleRow(GREEDY, 0, 10, mask=half)),
        "greedy, penalties on 500 tokens": (logits, SampleRow(PENALISED, 0, 10, (), seen)),
    }
    return {
        name: round(median_s(partial(sampler.sample, values, [row] * 16), 30) / 16 * 1e6, 1)
        for name, (values, row) in kinds.items()
    }


def shared_sampler_times(vocab_size: int) -> dict[str, float]:
    """Milliseconds of the clock of 64 rows at once, by threads, the median of 30."""
    logits = np.random.default_rng(0).normal(0, 4, (64, vocab_size)).astype(np.float32)
    found = {}
    for num_threads in sorted({1, usable_processors()}):
        sampler = Sampler(vocab_size, pool=ThreadPool(num_threads, usable_processors()))
        for name, sampling in (("greedy", GREEDY), ("temperature, top_p", NUCLEUS)):
            rows = [SampleRow(sampling, row, 10) for row in range(64)]
            times = []
            for _ in range(30):
                start = time.perf_counter()
                sampler.sample(logits, rows)
                times.append(time.perf_counter() - start)
            found[f"{name}, {num_threads} threads"] = round(statistics.median(times) * 1e3, 2)
    return found


def load_times(path: Path) -> dict[str, float]:
    """Seconds of the clock, from a warm file cache, the least of three."""

    def start_engine() -> None:
        Engine(path, max_total_tokens=4096).shutdown()

    return {
        "file and tokenizer": round(least_s(lambda: load_model(path)), 2),
        "whole engine": round(least_s(start_engine), 2),
    }


def least_s(action: Callable[[], Any]) -> float:
    """Seconds of the clock of the fastest of three calls."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def tokenizer_times(model: LoadedModel) -> dict[str, float]:
    """Encoding and decoding of 200 KB of words, and one step of incremental decoding."""
    tokenizer = model.tokenizer
    random = np.random.default_rng(0)
    letters = "etaoinshrdlucmfwypvbgk"
    words = ["".join(random.choice(list(letters), size)) for size in random.integers(2, 9, 4000)]
    text = " ".join(words[index] for index in random.integers(0, len(words), 34_000))
    ids = tokenizer.encode(text)
    decoder = tokenizer.decoder()
    return {
        "encode MB/s": round(len(text) / median_s(lambda: tokenizer.encode(text), 5) / 1e6, 2),
        "decode Mtokens/s": round(len(ids) / median_s(lambda: tokenizer.decode(ids), 5) / 1e6, 2),
        "push us": round(
            median_s(lambda: [decoder.push(i) for i in ids[:5000]], 5) / 5000 * 1e6, 2
        ),
    }


def main() -> None:
    """Measures everything and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=None)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    path = resolve_model(options.model)
    model = load_model(path)
    vocab_size = model.plan.geometry.vocab_size
    result = {
        "model": model.name,
        "load, s": load_times(path),
        "step without executor and sampler, ms": step_times(model),
        "the same through AsyncEngine, ms": delivery_times(model),
        "radix tree, us": tree_times(),
        f"sampler at {vocab_size}, us per row": sampler_times(vocab_size),
        "sampler, 64 rows, ms": shared_sampler_times(vocab_size),
        "tokenizer": tokenizer_times(model),
    }
    print_report(result, options.json)


if __name__ == "__main__":
    main()
