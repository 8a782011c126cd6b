"""Alternating rounds: every peer does a piece of work in turn, while the others are frozen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bench.engine.neighbours import NeighbourWatch
from bench.engine.prompts import PromptSource
from bench.engine.summary import DISTURBED_SHARE, Comparison, Figure, Round, decode_rate
from bench.engine.workloads import WORKLOADS, Workload, groups, joint_setup
from bench.peers.catalog import PEERS, launch
from bench.peers.process import PeerError, PeerProcess
from bench.peers.protocol import Setup

# (model alias, reads_gguf) -> file or folder
ModelPaths = Callable[[str, bool], Path]


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
    """Starts peers as the work needs them, and keeps one running where it fits the next group."""

    def __init__(self, folder: Path, models: ModelPaths, num_threads: int) -> None:
        self._folder = folder
        self._models = models
        self._num_threads = num_threads
        self._running: dict[str, tuple[Setup, PeerProcess]] = {}
        self.facts: dict[str, dict[str, object]] = {}

    def run(
        self,
        names: Sequence[str],
        workloads: Sequence[Workload],
        prompts: Mapping[str, PromptSource],
        num_rounds: int,
    ) -> list[Comparison]:
        """Measures all work; a peer that fails is left out of the rest of its group."""
        figures: dict[tuple[str, str], Figure] = {}
        for group in groups(workloads):
            able = [name for name in names if group[0].model in PEERS[name].models]
            ready = [name for name in able if self._start(name, group, figures)]
            for round_number in range(num_rounds + 1):  # the first one warms up
                # Who goes first changes, since a machine may slow down as a round goes on.
                turn = round_number % max(1, len(ready))
                for work in group:
                    for name in [*ready[turn:], *ready[:turn]]:
                        self._turn(name, work, prompts[work.model], round_number, figures)
        return [
            Comparison(
                work,
                {name: figures[name, work.name] for name in names if (name, work.name) in figures},
            )
            for work in workloads
        ]

    def close(self) -> None:
        """Ends every peer."""
        for name in list(self._running):
            self._stop(name)

    def _start(
        self,
        name: str,
        group: Sequence[Workload],
        figures: dict[tuple[str, str], Figure],
    ) -> bool:
        setup = self._setup(name, group)
        if name in self._running and self._running[name][0] == setup:
            return True
        self._stop(name)
        _note(f"starting {name}")
        process = launch(PEERS[name], self._folder)
        self._running[name] = (setup, process)
        try:
            process.start(setup)
        except PeerError as error:
            self._fail(name, group, error, figures)
            return False
        self.facts[name] = process.facts
        process.freeze()
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

    def _turn(
        self,
        name: str,
        work: Workload,
        prompts: PromptSource,
        round_number: int,
        figures: dict[tuple[str, str], Figure],
    ) -> None:
        if name not in self._running:
            return
        process = self._running[name][1]
        cut = prompts.cut(work.name, round_number, work.rows, work.context, work.shared)
        figure = figures.get((name, work.name), Figure())
        process.thaw()
        watch = NeighbourWatch(process.process_id)
        try:
            rate = measure(process, work, cut)
        except PeerError as error:
            self._fail(name, [work], error, figures)
            return
        except ValueError as error:
            problem = f"round {round_number} was thrown away: {error}"
            _note(f"{work.name}, {name}: {problem}")
            if round_number > 0:
                figures[name, work.name] = Figure(figure.rounds, problem)
            return
        finally:
            others = watch.share() or 0.0
            process.freeze()
        if round_number > 0:
            rounds = (*figure.rounds, Round(rate, others))
            figures[name, work.name] = Figure(rounds, figure.problem)
        _note(
            f"round {round_number} {work.name:22} {name:13} {rate:9.1f} tokens/s"
            + (f", others took {others:.0%}" if others > DISTURBED_SHARE else "")
        )

    def _fail(
        self,
        name: str,
        group: Sequence[Workload],
        error: PeerError,
        figures: dict[tuple[str, str], Figure],
    ) -> None:
        _note(str(error))
        for work in group:
            rounds = figures.get((name, work.name), Figure()).rounds
            figures[name, work.name] = Figure(rounds, str(error).splitlines()[0])
        self._stop(name)

    def _stop(self, name: str) -> None:
        if name in self._running:
            self._running.pop(name)[1].close()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
