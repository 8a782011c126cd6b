"""Constrained output of peers: alternating rounds, figures and reasons; no peer is started."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from bench.constrain.judgement import is_valid
from bench.constrain.peer_jobs import Job, jobs
from bench.constrain.peer_report import report
from bench.constrain.peer_rounds import ConstrainedRounds, Outcome, Peer, Trial
from bench.constrain.workloads import Work
from bench.peers.process import PeerError, PeerProcess, PeerRefusedError
from bench.peers.protocol import Form, Setup

END = 0
DIGITS = Work("two digits: ", {"regex": "[0-9]{2}"}, 5)
SCHEMA = Work("a number: ", {"json_schema": {"type": "integer", "minimum": 3}}, 5)
ESPALIER, VLLM = Peer("espalier"), Peer("vllm", "guidance")
ONE = Job("digits", (SCHEMA,), is_cached=False)
TWO = Job("digits", (SCHEMA, SCHEMA), is_cached=True)


def encode(text: str) -> list[int]:
    return list(text.encode())


class Bytes:
    """A tokenizer whose tokens are bytes."""

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode()

    def is_control(self, token: int) -> bool:
        return token == END


class FakeProcess:
    """A peer that answers what `answer` says, awake while it works and still otherwise."""

    def __init__(self, peer: Peer, answer: Callable[..., list[int]], log: list[Any]) -> None:
        self._peer, self._answer, self._log = peer, answer, log
        self.process_id = os.getpid()
        self.facts = {"version": "1"}
        self.is_awake = True

    def start(self, setup: Setup) -> float:
        self._log.append(("start", self._peer, setup))
        return 0.0

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form]
    ) -> tuple[list[list[int]], float]:
        assert self.is_awake
        assert len(prompts) == len(forms)
        assert num_tokens == SCHEMA.max_new_tokens
        self._log.append(("call", self._peer, bytes(prompts[0]).decode()))
        return [self._answer(self._peer, prompts)] * len(prompts), 0.5

    def thaw(self) -> None:
        self.is_awake = True

    def freeze(self) -> None:
        self.is_awake = False

    def close(self) -> None:
        self._log.append(("close", self._peer))


def right(_: Peer, __: list[list[int]]) -> list[int]:
    return [*b"7", END]


def run(
    todo: list[Job], answer: Callable[..., list[int]] = right, num_rounds: int = 2
) -> tuple[Any, list[Any]]:
    """Outcomes, and what happened to the processes."""
    log: list[Any] = []
    rounds = ConstrainedRounds(
        lambda is_gguf: Path("gguf" if is_gguf else "folder"),
        encode,
        2,
        num_rounds,
        launch_peer=lambda peer: cast(PeerProcess, FakeProcess(peer, answer, log)),
    )
    outcomes = rounds.run([ESPALIER, VLLM], todo)
    rounds.close()
    assert sum(one[0] == "start" for one in log) == sum(one[0] == "close" for one in log)
    return outcomes, log


def test_peers_take_turns_and_the_first_round_does_not_count() -> None:
    outcomes, log = run([ONE])
    assert [one[1] for one in log if one[0] == "call"] == [
        *(ESPALIER, VLLM),
        *(VLLM, ESPALIER),
        *(ESPALIER, VLLM),
    ]
    assert [len(outcome.trials) for outcome in outcomes.values()] == [2, 2]
    setups = {one[1]: one[2] for one in log if one[0] == "start"}
    assert setups[VLLM].options == {"backend": "guidance"}
    assert (setups[VLLM].model, setups[ESPALIER].model) == ("folder", "gguf")
    assert setups[ESPALIER].prefix_cache
    assert setups[ESPALIER].options is None


def test_prompts_of_a_round_are_new_unless_they_shall_be_cached() -> None:
    _, log = run([ONE, TWO])
    fresh, cached = (
        [one[2] for one in log if one[0] == "call" and one[1] == ESPALIER][part]
        for part in (slice(0, 3), slice(3, 6))
    )
    assert len({text[:4] for text in fresh}) == 3
    assert set(cached) == {SCHEMA.prompt}


def test_sizes_hold_every_round_and_one_start_of_vllm_serves_all_jobs() -> None:
    _, log = run([ONE, TWO])
    starts = [(one[1], one[2]) for one in log if one[0] == "start"]
    sizes = {peer: [setup.max_rows for one, setup in starts if one == peer] for peer, _ in starts}
    assert sizes == {ESPALIER: [1, 2], VLLM: [2]}
    # The first job's prompts are longer by what makes each round new; its rows are fewer.
    longest = max(len(one[2]) for one in log if one[0] == "call")
    vllm = next(setup for one, setup in starts if one == VLLM)
    assert vllm.max_context == longest + SCHEMA.max_new_tokens + 1
    assert vllm.kv_tokens == 2 * (len(SCHEMA.prompt) + SCHEMA.max_new_tokens + 1)


def test_refusal_is_a_reason_and_the_process_stays() -> None:
    def refuses(peer: Peer, prompts: list[list[int]]) -> list[int]:
        if peer == VLLM and len(prompts) == 1:
            raise PeerRefusedError("vllm: takes gbnf, and the form is given as regex")
        return right(peer, prompts)

    outcomes, log = run([ONE, TWO], refuses)
    assert outcomes[ONE, VLLM] == Outcome([], "vllm: takes gbnf, and the form is given as regex")
    assert len(outcomes[TWO, VLLM].trials) == 2
    assert sum(one[:2] == ("start", VLLM) for one in log) == 1


def test_death_is_a_reason_and_the_peer_is_started_again_for_the_next_job() -> None:
    def dies(peer: Peer, prompts: list[list[int]]) -> list[int]:
        if peer == VLLM and len(prompts) == 1 and bytes(prompts[0]).startswith(b"(1)"):
            raise PeerError("vllm ended with status 7:\nout of memory")
        return right(peer, prompts)

    outcomes, log = run([ONE, TWO], dies)
    assert outcomes[ONE, VLLM].problem == "vllm ended with status 7: out of memory"
    assert outcomes[ONE, VLLM].trials == []
    assert len(outcomes[ONE, ESPALIER].trials) == len(outcomes[TWO, VLLM].trials) == 2
    assert sum(one[:2] == ("start", VLLM) for one in log) == 2


def test_report_counts_text_tokens_and_valid_outputs() -> None:
    job = Job("digits", (DIGITS, SCHEMA), is_cached=False)
    good, bad = [list(b"12"), [*b"4", END]], [[*b"123", END], [*b"4 "]]
    outcomes = {
        (job, ESPALIER): Outcome([Trial(0.5, good, 0.0), Trial(0.25, good, 0.0)]),
        (job, VLLM): Outcome([Trial(1.0, bad, 0.0), Trial(1.0, good, 0.5)], "died"),
        (job, Peer("openvino")): Outcome([], "not here"),
    }
    found = report(outcomes, Bytes())["digits, 2 rows"]
    assert found["espalier"] == {
        "programs/s": 6.0,
        "tokens/s": 9.0,
        "tokens an output": 1.5,
        "valid": "4 of 4",
        "rounds": [4.0, 8.0],
    }
    assert found["vllm:guidance"]["valid"] == "3 of 4"
    assert found["vllm:guidance"]["rounds disturbed by others"] == 1
    assert found["vllm:guidance"]["problem"] == "died"
    assert found["openvino"] == {"none, since": "not here"}
    assert found["espalier / fastest peer"] == "4.00 (vllm:guidance)"


def test_peer_without_a_valid_output_is_not_the_fastest() -> None:
    job = Job("digits", (DIGITS,), is_cached=False)
    outcomes = {
        (job, ESPALIER): Outcome([Trial(0.5, [[*b"12"]], 0.0)]),
        (job, VLLM): Outcome([Trial(0.1, [[*b"x"]], 0.0)]),
    }
    found = report(outcomes, Bytes())["digits, 1 rows"]
    assert found["vllm:guidance"]["valid"] == "0 of 1"
    assert set(found) == {"espalier", "vllm:guidance"}


@pytest.mark.parametrize(
    ("work", "text", "is_right"),
    [
        (DIGITS, "12", True),
        (DIGITS, "1", False),
        (DIGITS, "12\n", False),
        (SCHEMA, "3", True),
        (SCHEMA, "2", False),
        (SCHEMA, '{"broken', False),
    ],
)
def test_judgement(work: Work, text: str, is_right: bool) -> None:
    assert is_valid(work, text) == is_right


def test_jobs_are_all_kinds_with_all_rows() -> None:
    found = jobs(["city", "schemas"], [1, 16], is_cached=True)
    names = ["city, 1 rows", "city, 16 rows", "schemas, 1 rows", "schemas, 16 rows"]
    assert [job.name for job in found] == names
    assert [len(job.forms) for job in found] == [1, 16, 1, 16]
    assert "gbnf" in found[0].forms[0]
    assert str(Peer.parse("vllm:guidance")) == "vllm:guidance"
    assert Peer.parse("vllm") == Peer("vllm")
