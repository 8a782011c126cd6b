"""Alternating rounds of constrained output: every peer does a job in turn, the others frozen.

Every pair of a peer and a job ends as trials, as the reason why there are none, or both.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.constrain.peer_jobs import Encode, Job
from bench.engine.neighbours import NeighbourWatch
from bench.engine.rounds import reason
from bench.engine.workloads import joint_setup
from bench.peers.catalog import PEERS
from bench.peers.process import PeerError, PeerProcess, PeerRefusedError
from bench.peers.protocol import Setup

from espalier.errors import EspalierError

_FAILURES = (PeerError, EspalierError, OSError, ValueError)


@dataclass(frozen=True)
class Peer:
    """A peer, and which of its backends holds the forms; written "peer" or "peer:backend"."""

    name: str
    backend: str | None = None

    @classmethod
    def parse(cls, text: str) -> Peer:
        name, _, backend = text.partition(":")
        return cls(name, backend or None)

    def __str__(self) -> str:
        return self.name if self.backend is None else f"{self.name}:{self.backend}"


@dataclass(frozen=True)
class Trial:
    """One call: its time, the outputs of all rows, and what others took of the processors."""

    seconds: float
    outputs: list[list[int]]
    others: float


@dataclass
class Outcome:
    """All trials of one peer at one job, and what went wrong, if anything did."""

    trials: list[Trial] = field(default_factory=list)
    problem: str | None = None


class ConstrainedRounds:
    """Starts each peer when a job needs it; `close` ends all.

    A peer that fails at a job is done with that job, and is started again for the next.
    """

    def __init__(
        self,
        model: Callable[[bool], Path],
        encode: Encode,
        num_threads: int,
        num_rounds: int,
        *,
        launch_peer: Callable[[Peer], PeerProcess],
    ) -> None:
        """`model` gives the GGUF file, or for False the Hugging Face folder."""
        self._model = model
        self._encode = encode
        self._num_threads = num_threads
        self._num_rounds = num_rounds
        self._launch = launch_peer
        self._running: dict[Peer, tuple[Setup, PeerProcess]] = {}
        self.facts: dict[str, object] = {}

    def run(self, peers: Sequence[Peer], jobs: Sequence[Job]) -> Mapping[tuple[Job, Peer], Outcome]:
        """All jobs by all peers, once to warm up (grammars are compiled then) and in rounds."""
        outcomes = {(job, peer): Outcome() for job in jobs for peer in peers}
        for job in jobs:
            for number in range(self._num_rounds + 1):
                turn = number % len(peers)
                for peer in [*peers[turn:], *peers[:turn]]:
                    outcome = outcomes[job, peer]
                    if outcome.problem is None:
                        self._turn(peer, job, jobs, number, outcome)
        return outcomes

    def close(self) -> None:
        """Ends every peer."""
        for peer in list(self._running):
            self._stop(peer)

    def _turn(
        self, peer: Peer, job: Job, jobs: Sequence[Job], number: int, outcome: Outcome
    ) -> None:
        try:
            process = self._started(peer, job, jobs)
            trial = self._trial(process, job, number)
        except PeerRefusedError as error:
            outcome.problem = reason(error)
        except _FAILURES as error:
            outcome.problem = reason(error)
            self._stop(peer)
        else:
            if number > 0:
                outcome.trials.append(trial)
            _note(
                f"round {number} {job.name:20} {peer!s:16} {trial.seconds:8.2f} s, "
                f"others took {trial.others:.0%}"
            )
        if outcome.problem is not None:
            _note(f"{job.name}, {peer}: {outcome.problem}")

    def _trial(self, process: PeerProcess, job: Job, number: int) -> Trial:
        prompts = job.prompts(self._encode, number)
        process.thaw()
        watch = NeighbourWatch(process.process_id)
        try:
            outputs, seconds = process.generate(prompts, job.num_tokens, job.forms)
            return Trial(seconds, outputs, watch.share() or 0.0)
        finally:
            process.freeze()

    def _started(self, peer: Peer, job: Job, jobs: Sequence[Job]) -> PeerProcess:
        """The process of a peer with sizes for the job, or for all jobs where they cost nothing."""
        served = jobs if PEERS[peer.name].serves_all_sizes else [job]
        model = str(self._model(PEERS[peer.name].reads_gguf))
        setup = joint_setup(
            [one.setup(self._encode, model, self._num_threads, self._num_rounds) for one in served]
        )
        if peer.backend is not None:
            setup = replace(setup, options={"backend": peer.backend})
        if peer not in self._running or self._running[peer][0] != setup:
            self._stop(peer)
            _note(f"starting {peer}")
            process = self._launch(peer)
            self._running[peer] = (setup, process)
            process.start(setup)
            self.facts[str(peer)] = process.facts
        return self._running[peer][1]

    def _stop(self, peer: Peer) -> None:
        if peer in self._running:
            self._running.pop(peer)[1].close()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
