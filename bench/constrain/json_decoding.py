"""Throughput of JSON that must have a form: with jump-forward, without, by masks, and free text.

    python bench/constrain/json_decoding.py --rows 1,16,64 --rounds 3

Every mode runs the same prompts, alternately; the prefix cache is emptied before each run, but with
--cached it holds the prompts, as where a page was asked about before. "free"
generates as many tokens after each prompt as the constrained output has. Figures are output tokens
per second, medians over the rounds, greedy. "masks" leaves tokens as they were chosen and forces
none, as other engines do. The log-likelihood of the outputs is that of their tokens, by the model.

With --peers other programs are measured instead, and Espalier beside them: whole outputs a second
(bench/constrain/peer_rounds.py). "vllm:guidance" is vLLM with that backend for its forms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.constrain.peer_comparison import compare_peers
from bench.constrain.workloads import KINDS, Work, works
from bench.engine.options import positive, positives
from bench.peers.catalog import default_folder
from bench.report import print_report

from espalier.runtime import Engine

MODES: dict[str, dict[str, Any]] = {
    "jump": {},
    "no jump": {"jump_forward": False},
    "masks": {"canonical": False},
}


def sampling(work: Work, temperature: float) -> dict[str, Any]:
    return {"temperature": temperature, "max_new_tokens": work.max_new_tokens, **work.form}


def free_sampling(num_tokens: int, temperature: float) -> dict[str, Any]:
    return {"temperature": temperature, "max_new_tokens": num_tokens, "ignore_eos": True}


def timed(
    engine: Engine, todo: list[Work], params: list[dict[str, Any]], is_cached: bool
) -> tuple[float, list[dict[str, Any]]]:
    """Seconds and answers of one run; the prefix cache is empty, or holds the prompts alone."""
    prompts = [work.prompt for work in todo]
    engine.flush_cache()
    if is_cached:
        engine.generate(prompts, {"max_new_tokens": 0})
    start = time.perf_counter()
    answers = engine.generate(prompts, params)
    return time.perf_counter() - start, answers


def num_tokens(answers: list[dict[str, Any]]) -> list[int]:
    return [answer["meta_info"]["completion_tokens"] for answer in answers]


def log_likelihood(engine: Engine, todo: list[Work], answers: list[dict[str, Any]]) -> float:
    """Mean over outputs of the log-probability of their tokens, by the model alone."""
    sums = []
    for work, answer in zip(todo, answers, strict=True):
        prompt = engine.tokenizer.encode(work.prompt, allow_special=True)
        ids = prompt + answer["output_ids"]
        scored = engine.generate(
            input_ids=ids,
            sampling_params={"max_new_tokens": 0},
            return_logprob=True,
            logprob_start_len=len(prompt),
        )
        entries = scored["meta_info"]["input_token_logprobs"]
        sums.append(sum(entry[0] for entry in entries))
    return statistics.fmean(sums)


def is_canonical(engine: Engine, answer: dict[str, Any]) -> bool:
    ids = answer["output_ids"]
    if ids and engine.tokenizer.is_control(ids[-1]):
        ids = ids[:-1]
    return bool(engine.tokenizer.encode(answer["text"], at_start=False) == ids)


def measure(
    engines: dict[str, Engine], kind: str, rows: int, options: argparse.Namespace
) -> dict[str, Any]:
    """One row of the table: all modes on one kind of work."""
    todo = works(kind, rows)
    params = [sampling(work, options.temperature) for work in todo]
    seconds: dict[str, list[float]] = {name: [] for name in (*MODES, "free")}
    answers: dict[str, list[dict[str, Any]]] = {}
    for name, engine in engines.items():  # warm: grammars compiled, masks known
        answers[name] = timed(engine, todo, params, options.cached)[1]
    lengths = num_tokens(answers["jump"])
    free = [free_sampling(length, options.temperature) for length in lengths]
    for _ in range(options.rounds):
        for name, engine in engines.items():
            spent, answers[name] = timed(engine, todo, params, options.cached)
            seconds[name].append(spent)
        seconds["free"].append(timed(engines["jump"], todo, free, options.cached)[0])
    rates = {name: 1 / statistics.median(spent) for name, spent in seconds.items()}
    counts = {name: sum(num_tokens(answers[name])) for name in MODES} | {"free": sum(lengths)}
    rates = {name: rate * counts[name] for name, rate in rates.items()}
    texts = {name: [answer["text"] for answer in found] for name, found in answers.items()}
    same_tokens = [answer["output_ids"] for answer in answers["jump"]] == [
        answer["output_ids"] for answer in answers["no jump"]
    ]
    forced = sum(answer["meta_info"]["forced_tokens"] for answer in answers["jump"])
    pairs = list(zip(texts["jump"], texts["masks"], strict=True))
    return {
        "tokens an output": round(sum(lengths) / rows, 1),
        "forced": f"{forced / sum(lengths):.0%}",
        **{f"{name}, tokens/s": round(rate) for name, rate in rates.items()},
        "jump / no jump": round(rates["jump"] / rates["no jump"], 2),
        "jump / free": round(rates["jump"] / rates["free"], 2),
        "outputs/s, jump / masks": round(
            statistics.median(seconds["masks"]) / statistics.median(seconds["jump"]), 2
        ),
        "tokens equal without jumps": same_tokens,
        "canonical outputs": f"{sum(is_canonical(engines['jump'], a) for a in answers['jump'])} of "
        f"{rows}; masks {sum(is_canonical(engines['jump'], a) for a in answers['masks'])}",
        "text differs from masks": f"{sum(one != other for one, other in pairs)} of {rows}",
        "mean log-likelihood": {
            name: round(log_likelihood(engines["jump"], todo, answers[name]), 2)
            for name in ("jump", "masks")
        },
    }


def main() -> None:
    """Prints a table for each kind of work and number of rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rows", type=positives, default=[1, 16])
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--cached", action="store_true", help="prompts are cached before")
    parser.add_argument("--peers", help="peer or peer:backend, separated by commas")
    parser.add_argument("--peers-dir", type=Path, default=default_folder())
    parser.add_argument("--threads", type=positive)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    if options.peers is not None:
        print_report(compare_peers(options), options.json)
        return
    engines = {
        name: Engine(options.model, num_threads=options.threads, **settings)
        for name, settings in MODES.items()
    }
    table = {
        kind: {f"{rows} rows": measure(engines, kind, rows, options) for rows in options.rows}
        for kind in options.kinds.split(",")
    }
    print_report(table, options.json)
    for engine in engines.values():
        engine.shutdown()


if __name__ == "__main__":
    main()
