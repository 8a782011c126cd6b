"""Quality of weight and KV formats against float32 weights of the same file.

    python bench/engine/quality.py --json

At every position of a fixed text: KL divergence of the next-token distribution from that of float32
weights (mean and 99th percentile, in nats), how often the most probable token is the same, and
perplexity. llama.cpp is measured on the same file where scripts/bench-peers has installed it. All
formats go over the text side by side, so that a few rows of logits are in memory at a time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

import numpy as np
from bench.engine.divergence import Quality, ReferenceRows, RowScores, summarise
from bench.engine.logit_sources import ExecutorLogits, LogitSource, PeerLogits
from bench.engine.prompts import bench_text
from bench.peers.catalog import GEMMA3, PEERS, SMOLLM2, default_folder, launch, python_of
from bench.peers.models import model_path
from bench.peers.process import PeerError
from bench.peers.protocol import Setup
from bench.report import print_report

from espalier.errors import EspalierError
from espalier.loaders.model import LoadedModel, load_model

_WEIGHTS = ("int8", "int4", "bf16", "f32")
_KV_DTYPES = ("bf16", "int8", "f32")
_DEFAULT = "auto/auto"
_PEER = "llamacpp"


def parse_options() -> argparse.Namespace:
    """Command-line options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=f"{SMOLLM2},{GEMMA3}", help="separated by commas")
    parser.add_argument("--weights", default=",".join(_WEIGHTS), help="formats to try")
    parser.add_argument("--kv-dtypes", default=",".join(_KV_DTYPES), help="formats to try")
    parser.add_argument("--text", type=Path, help="another text")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--window", type=int, default=1024, help="positions before a fresh start")
    parser.add_argument("--step-rows", type=int, default=64, help="positions at a time")
    parser.add_argument("--peers-dir", type=Path, default=default_folder())
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if not 2 <= options.window <= options.tokens or options.step_rows < 1:
        parser.error("--window must be from 2 to --tokens, and --step-rows at least 1")
    return options


def windows(model: LoadedModel, text: str, num_tokens: int, window: int) -> list[list[int]]:
    """The text's first tokens in windows of one length, each behind a BOS where the model has one.

    Raises ValueError where the text is too short.
    """
    tokenizer = model.tokenizer
    head = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    body = window - len(head)
    count = -(-num_tokens // window)
    ids = tokenizer.encode(text, add_bos=False)
    if len(ids) < count * body:
        raise ValueError(f"the text has {len(ids)} tokens; {count * body} are needed.")
    return [head + ids[index * body : (index + 1) * body] for index in range(count)]


def score(
    parts: Sequence[list[int]],
    reference: LogitSource,
    sources: Mapping[str, LogitSource],
    step_rows: int,
) -> dict[str, Quality]:
    """Quality of each source against the reference, over all windows."""
    scores: dict[str, list[RowScores]] = {name: [] for name in sources}
    for number, ids in enumerate(parts):
        follows = np.array([*ids[1:], -1], dtype=np.int64)
        streams = {name: source.window(ids, step_rows) for name, source in sources.items()}
        for first, logits in enumerate(reference.window(ids, step_rows)):
            start = first * step_rows
            rows = ReferenceRows(logits, follows[start : start + len(logits)])
            for name, stream in streams.items():
                scores[name].append(rows.scores(next(stream)))
        print(f"window {number + 1} of {len(parts)}", file=sys.stderr, flush=True)
    return {name: summarise(parts) for name, parts in scores.items()}


def formats(weights: Sequence[str], kv_dtypes: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs that are measured: the default, each weight format, each KV format."""
    pairs = [("auto", "auto"), *((name, "auto") for name in weights)]
    return list(dict.fromkeys([*pairs, *(("auto", name) for name in kv_dtypes)]))


def measure_model(alias: str, options: argparse.Namespace) -> dict[str, Any]:
    """The report of one model."""
    path = model_path(alias, True, options.peers_dir)
    model = load_model(path, name=alias)
    text, text_name = bench_text(options.text)
    parts = windows(model, text, options.tokens, options.window)
    sources: dict[str, LogitSource] = {}
    refused: dict[str, str] = {}
    sizes = (options.window, options.step_rows)
    with tempfile.TemporaryDirectory() as folder:
        try:
            for weights, kv_dtype in formats(
                options.weights.split(","), options.kv_dtypes.split(",")
            ):
                name = f"{weights}/{kv_dtype}"
                try:
                    sources[name] = ExecutorLogits(model, weights, kv_dtype, *sizes)
                except EspalierError as error:
                    refused[name] = str(error)
            try:
                sources["llama.cpp"] = _llama(path, options, Path(folder))
            except PeerError as error:
                refused["llama.cpp"] = str(error)
            reference = ExecutorLogits(model, "f32", "f32", *sizes)
            found = score(parts, reference, sources, options.step_rows)
            reference.close()
        finally:
            for source in sources.values():
                source.close()
    return {
        "model": alias,
        "text": text_name,
        "positions": sum(map(len, parts)),
        "formats": {name: asdict(quality) for name, quality in found.items()},
        "refused": refused,
    }


def _llama(path: Path, options: argparse.Namespace, folder: Path) -> PeerLogits:
    peer = PEERS[_PEER]
    if python_of(peer, options.peers_dir) is None:
        raise PeerError(f"not installed: run `scripts/bench-peers {_PEER}`")
    process = launch(peer, options.peers_dir)
    try:
        process.start(Setup(str(path), max_context=options.window, kv_tokens=options.window))
    except PeerError:
        process.close()
        raise
    return PeerLogits(process, folder)


def table(report: Mapping[str, Any]) -> str:
    """A text table of one model."""
    lines = [
        f"{report['model']}, {report['positions']} positions of {report['text']}",
        f"{'weights/kv':14}{'mean KL':>10}{'99% KL':>10}{'top-1':>8}{'perplexity':>12}",
    ]
    for name, quality in report["formats"].items():
        lines.append(
            f"{name:14}{quality['mean_kl']:10.5f}{quality['kl_99']:10.4f}"
            f"{quality['best_equal']:8.3f}{quality['perplexity']:12.3f}"
        )
    lines += [f"{name:14}refused: {why}" for name, why in report["refused"].items()]
    return "\n".join(lines)


def main() -> None:
    """Measures the models one after the other."""
    options = parse_options()
    reports = []
    for alias in options.models.split(","):
        reports.append(measure_model(alias, options))
        if not options.json:
            print(table(reports[-1]) + "\n", flush=True)
    if options.json:
        print_report({"models": reports}, is_json=True)


if __name__ == "__main__":
    main()
