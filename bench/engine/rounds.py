"""Alternating rounds: every peer does a piece of work in turn, while the others are frozen.

Every pair of a peer and a piece of work ends as a figure, as the reason why there is none, or both.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.engine.neighbours import NeighbourWatch
from bench.engine.prompts import PromptSource
from bench.engine.summary import Comparison, Figure, Round, decode_rate
from bench.engine.workloads import WORKLOADS, Workload, groups, joint_setup
from bench.peers.catalog import PEERS, launch
from bench.peers.models import model_path
from bench.peers.process import PeerError, PeerProcess
from bench.peers.protocol import Setup

from espalier.errors import EspalierError

# (model alias, reads_gguf) -> file or folder
ModelPaths = Callable[[str, bool], Path]
Launch = Callable[[str], PeerProcess]
# What ends the start of a peer, the export of its model included.
_START_FAILURES = (PeerError, EspalierError, OSError, ValueError)


def measure(process: PeerProcess, work: Workload, prompts: list[list[int]]) -> float:
    """Tokens per second of one peer at one piece of work.

    Prefill: the prompt and one token. Decode: what more tokens cost after the first one, with
    the prompt in the peer's cache where it has one.
    """
    if work.is_prefill:
        _, seconds = process.generate(prompts, 1)
        return work.rows * work.context / seconds
    if process.facts.get("caches_prefix", True):
        process.generate(prompts, 1)
    _, first_s = process.generate(prompts, 1)
    _, all_s = process.generate(prompts, work.num_tokens + 1)
    return decode_rate(work.rows, work.num_tokens, first_s, all_s)


class Runner:
    """Starts peers as the work needs them, and keeps one running where it fits the next group.

    A peer that fails at a piece of work is done with that work, and is started again for the rest.
    """

    def __init__(
        self, folder: Path, models: ModelPaths, num_threads: int, launch_peer: Launch | None = None
    ) -> None:
        self._launch = launch_peer or (lambda name: launch(PEERS[name], folder))
        self._models = models
        self._num_threads = num_threads
        self._running: dict[str, tuple[Setup, PeerProcess]] = {}
        self._figures: dict[tuple[str, str], Figure] = {}
        self._given_up: set[tuple[str, str]] = set()
        self._ready: set[str] = set()  # runs with what the group needs
        self._warm: set[tuple[str, str]] = set()
        self.facts: dict[str, dict[str, object]] = {}

    def run(
        self,
        names: Sequence[str],
        workloads: Sequence[Workload],
        prompts: Mapping[str, PromptSource],
        num_rounds: int,
    ) -> list[Comparison]:
        """Measures all work, `num_rounds` times and once before that to warm up."""
        assert num_rounds >= 1
        for group in groups(workloads):
            model = group[0].model
            self._ready.clear()
            for name in names:
                if model not in PEERS[name].models:
                    self._give_up(name, group, f"{name} does not read {model}")
            for round_number in range(num_rounds + 1):
                # Who goes first changes, since a machine may slow down as a round goes on.
                turn = round_number % max(1, len(names))
                for work in group:
                    for name in [*names[turn:], *names[:turn]]:
                        self._turn(name, work, group, prompts[model], round_number)
        return [
            Comparison(work, {name: self._figures[name, work.name] for name in names})
            for work in workloads
        ]

    def close(self) -> None:
        """Ends every peer."""
        for name in list(self._running):
            self._stop(name)

    def _turn(
        self,
        name: str,
        work: Workload,
        group: Sequence[Workload],
        prompts: PromptSource,
        round_number: int,
    ) -> None:
        pair = name, work.name
        if pair in self._given_up:
            return
        try:
            cut, first_cut = (
                prompts.cut(work.name, number, work.rows, work.context, work.shared)
                for number in (round_number, 0)
            )
        except ValueError as error:
            self._give_up(name, [work], f"there is no prompt: {error}")
            return
        if name not in self._ready and not self._start(name, group):
            return
        try:
            if round_number > 0 and pair not in self._warm:  # it was started again
                self._measure(name, work, first_cut)
            one = self._measure(name, work, cut)
        except (PeerError, OSError) as error:
            self._give_up(name, [work], reason(error))
            self._stop(name)
            return
        except ValueError as error:
            self._throw_away(name, work, round_number, error)
            return
        if round_number > 0:
            figure = self._figures.get(pair, Figure())
            self._figures[pair] = Figure((*figure.rounds, one), figure.problem)
        _note(
            f"round {round_number} {work.name:22} {name:13} {one.rate:9.1f} tokens/s"
            + (f", others took {one.others:.0%}" if one.is_disturbed else "")
        )

    def _measure(self, name: str, work: Workload, prompts: list[list[int]]) -> Round:
        process = self._running[name][1]
        process.thaw()
        watch = NeighbourWatch(process.process_id)
        try:
            rate = measure(process, work, prompts)
            self._warm.add((name, work.name))
            return Round(rate, watch.share() or 0.0)
        finally:
            process.freeze()

    def _start(self, name: str, group: Sequence[Workload]) -> bool:
        """Has the peer run with what the group needs; false where it cannot."""
        try:
            setup = self._setup(name, group)
            if name not in self._running or self._running[name][0] != setup:
                self._stop(name)
                _note(f"starting {name}")
                process = self._launch(name)
                self._running[name] = (setup, process)
                process.start(setup)
                self.facts[name] = process.facts
                process.freeze()
        except _START_FAILURES as error:
            self._stop(name)
            self._give_up(name, group, reason(error))
            return False
        self._ready.add(name)
        return True

    def _setup(self, name: str, group: Sequence[Workload]) -> Setup:
        peer = PEERS[name]
        first = group[0]
        served = group
        if peer.serves_all_sizes:
            # Whatever work was chosen, the sizes are the same: what such a peer compiles for them
            # at its start it finds again at the next.
            served = [
                work
                for work in (*WORKLOADS, *group)
                if (work.model, work.is_prefill) == (first.model, first.is_prefill)
            ]
        path = str(self._models(first.model, peer.reads_gguf))
        return joint_setup([work.setup(path, self._num_threads) for work in served])

    def _throw_away(self, name: str, work: Workload, round_number: int, error: ValueError) -> None:
        problem = f"round {round_number} was thrown away: {error}"
        _note(f"{work.name}, {name}: {problem}")
        if round_number > 0:
            rounds = self._figures.get((name, work.name), Figure()).rounds
            self._figures[name, work.name] = Figure(rounds, problem)

    def _give_up(self, name: str, group: Sequence[Workload], problem: str) -> None:
        """Tries these no more; rounds that were measured stay."""
        _note(f"{', '.join(work.name for work in group)}: {problem}")
        for work in group:
            pair = name, work.name
            if pair not in self._given_up:
                self._given_up.add(pair)
                self._figures[pair] = Figure(self._figures.get(pair, Figure()).rounds, problem)

    def _stop(self, name: str) -> None:
        self._warm = {pair for pair in self._warm if pair[0] != name}
        self._ready.discard(name)
        if name in self._running:
            self._running.pop(name)[1].close()


def run_rounds(
    names: Sequence[str],
    workloads: Sequence[Workload],
    prompts: Mapping[str, PromptSource],
    options: argparse.Namespace,
) -> tuple[list[Comparison], Mapping[str, object]]:
    """All work in `--rounds` rounds, by peers that are ended then, and what these said of
    themselves. `options` are those of options.rounds_parser.
    """
    runner = Runner(
        options.peers_dir,
        lambda model, gguf: model_path(model, gguf, options.peers_dir),
        options.threads,
    )
    try:
        return runner.run(names, workloads, prompts, options.rounds), runner.facts
    finally:
        runner.close()


def reason(error: Exception) -> str:
    """One line: the first of the message, and the last, which is what a peer printed last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
