"""Time of token masks of JSON schemas, beside llguidance, xgrammar and outlines-core.

    python bench/constrain/masks.py --data DIR --json

DIR holds the test data (README of the benches): schemas of the JSON-Schema-Test-Suite and function
signatures; schemas like those of real programs are made here. Each library follows the same texts,
as tokens of one model, twice: the first pass is cold, the second one warm. Timed is the call that
fills the mask of the next token, through the library's fastest call from Python, and compilation.
The libraries take turns, `--chunk` schemas at a time, so that a busy machine hurts all of them.
`common` are the schemas whose valid texts all libraries accept: there all make the same masks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.constrain.corpus import Case, function_cases, record_cases, suite_cases
from bench.constrain.mask_processes import ADAPTERS, MaskProcess
from bench.constrain.mask_summary import summary, table
from bench.engine.options import positive
from bench.peers.catalog import default_folder
from bench.report import commit_id, cpu_name

from espalier.loaders.gguf import GgufFile
from espalier.loaders.resolve import resolve_model
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.tokenizer import Tokenizer


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    """Up to `--limit` cases of each source, evenly spread, each schema once."""
    sources = [list(record_cases(options.seed))]
    if options.data is not None:
        sources.append(list(suite_cases(options.data / "json-schema-test-suite")))
        sources.append(list(function_cases(options.data / "bfcl")))
    chosen: list[Case] = []
    for cases in sources:
        distinct = list({case.schema: case for case in cases if case.valid}.values())
        count = min(len(distinct), options.limit or len(distinct))
        chosen += [distinct[index * len(distinct) // count] for index in range(count)]
    return chosen


def write_vocabulary(tokenizer: Tokenizer, path: Path) -> None:
    """The vocabulary as the adapters read it."""
    ids = range(tokenizer.vocab_size)
    assert tokenizer.eos_id is not None
    vocabulary = {
        "pieces": [tokenizer.token_bytes(token_id).hex() for token_id in ids],
        "special": [token_id for token_id in ids if tokenizer.is_control(token_id)],
        "eos_id": tokenizer.eos_id,
        "vocab_size": tokenizer.vocab_size,
    }
    path.write_text(json.dumps(vocabulary), encoding="utf-8")


def as_work(cases: list[Case], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Cases with their texts as token ids."""

    def ids(texts: list[str]) -> list[list[int]]:
        return [tokenizer.encode(text, add_bos=False, at_start=False) for text in texts]

    return [
        {"schema": case.schema, "valid": ids(case.valid), "invalid": ids(case.invalid)}
        for case in cases
    ]


def measure(cases: list[Case], tokenizer: Tokenizer, options: argparse.Namespace) -> dict[str, Any]:
    """The report: each library's figures."""
    names = options.libraries.split(",")
    unknown = sorted(set(names) - set(ADAPTERS))
    if unknown:
        raise SystemExit(f"unknown: {', '.join(unknown)}; known are {', '.join(ADAPTERS)}")
    results: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        vocabulary, work = folder / "vocabulary.json", folder / "work.json"
        write_vocabulary(tokenizer, vocabulary)
        processes = {
            name: stack.enter_context(MaskProcess(name, options.peers_dir, folder))
            for name in names
        }
        facts = {name: process.start(vocabulary) for name, process in processes.items()}
        for start in range(0, len(cases), options.chunk):
            chunk = cases[start : start + options.chunk]
            work.write_text(json.dumps(as_work(chunk, tokenizer)), encoding="utf-8")
            order = names if start // options.chunk % 2 == 0 else names[::-1]
            for name in order:
                results[name] += processes[name].measure(work)
            print(f"{start + len(chunk)} of {len(cases)} schemas", file=sys.stderr, flush=True)
        for name, process in processes.items():
            compiled = sum("compile_ns" in result for result in results[name])
            facts[name]["grammar_kib"] = round(process.resident_bytes / max(1, compiled) / 1024)
    report = {"libraries": facts, **summary(results, [case.source for case in cases])}
    if options.details is not None:
        rows = [
            {"case": f"{case.source}: {case.name}", **{name: results[name][i] for name in names}}
            for i, case in enumerate(cases)
        ]
        options.details.write_text(json.dumps(rows), encoding="utf-8")
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    data = os.environ.get("ESPALIER_TEST_DATA")
    parser.add_argument("--data", type=Path, default=Path(data) if data else None)
    parser.add_argument("--model", default="smollm2", help="whose vocabulary is used")
    parser.add_argument("--libraries", default=",".join(ADAPTERS))
    parser.add_argument("--limit", type=positive, help="schemas of each source (default: all)")
    parser.add_argument("--chunk", type=positive, default=20, help="schemas of one turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers-dir", type=Path, default=default_folder())
    parser.add_argument("--details", type=Path, help="JSON file for the results of each schema")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    path = resolve_model(options.model)
    tokenizer = tokenizer_from_gguf(GgufFile(path).metadata)
    report = measure(chosen_cases(options), tokenizer, options)
    if options.json:
        print(json.dumps({**report, "commit": commit_id(), "cpu": cpu_name()}))
        return
    facts = report.pop("libraries")
    print(table(report))
    for name, fact in facts.items():
        print(f"{name} {fact['version']}: {fact['grammar_kib']} KiB a grammar")
    print(f"{cpu_name()}, {commit_id()}")


if __name__ == "__main__":
    main()
