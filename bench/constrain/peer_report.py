"""What the rounds of constrained output say: programs and tokens per second, and what is valid."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bench.constrain.judgement import is_valid
from bench.constrain.peer_jobs import Job
from bench.constrain.peer_rounds import Outcome, Peer
from bench.engine.summary import Figure, Round
from bench.peers.catalog import ESPALIER


class Decoder(Protocol):
    """What is needed of a tokenizer."""

    def decode(self, ids: Sequence[int]) -> str: ...

    def is_control(self, token: int) -> bool: ...


def report(
    outcomes: Mapping[tuple[Job, Peer], Outcome], tokenizer: Decoder
) -> dict[str, dict[str, Any]]:
    """Figures of each peer at each job; Espalier's ratio to the fastest counts valid outputs."""
    found: dict[str, dict[str, Any]] = {}
    best: dict[str, dict[str, float]] = {}
    for (job, peer), outcome in outcomes.items():
        figures, programs_s = _figures(job, outcome, tokenizer)
        found.setdefault(job.name, {})[str(peer)] = figures
        if programs_s:
            best.setdefault(job.name, {})[str(peer)] = programs_s
    for name, rates in best.items():
        others = {peer: rate for peer, rate in rates.items() if peer != ESPALIER}
        if ESPALIER in rates and others:
            fastest = max(others, key=lambda peer: others[peer])
            ratio = rates[ESPALIER] / others[fastest]
            found[name]["espalier / fastest peer"] = f"{ratio:.2f} ({fastest})"
    return found


def _figures(job: Job, outcome: Outcome, tokenizer: Decoder) -> tuple[dict[str, Any], float | None]:
    """Names and values for people, and valid programs per second where there were trials."""
    if not outcome.trials:
        return {"none, since": outcome.problem}, None
    rows = len(job.todo)
    figure = Figure(tuple(Round(rows / one.seconds, one.others) for one in outcome.trials))
    median = figure.median
    assert median is not None
    outputs = [
        (work, _without_end(output, tokenizer))
        for trial in outcome.trials
        for work, output in zip(job.todo, trial.outputs, strict=True)
    ]
    num_valid = sum(is_valid(work, tokenizer.decode(ids)) for work, ids in outputs)
    num_tokens = statistics.fmean(len(ids) for _, ids in outputs)
    figures: dict[str, Any] = {
        "programs/s": round(median, 3),
        "tokens/s": round(median * num_tokens, 1),
        "tokens an output": round(num_tokens, 1),
        "valid": f"{num_valid} of {len(outputs)}",
        "rounds": [round(one.rate, 3) for one in figure.rounds],
    }
    if figure.num_disturbed:
        figures["rounds disturbed by others"] = figure.num_disturbed
    if outcome.problem is not None:
        figures["problem"] = outcome.problem
    return figures, median * num_valid / len(outputs)


def _without_end(ids: list[int], tokenizer: Decoder) -> list[int]:
    """The tokens of the text: what ends it is left out, since not every peer gives it."""
    end = len(ids)
    while end and tokenizer.is_control(ids[end - 1]):
        end -= 1
    return ids[:end]
