"""Every pair of a peer and a piece of work ends as a figure or as a reason; no peer is started."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from bench.engine.prompts import NoPrompts, Prompts
from bench.engine.rounds import Runner, reason
from bench.engine.summary import Comparison
from bench.engine.workloads import Workload
from bench.peers.catalog import GEMMA3, SMOLLM2
from bench.peers.process import PeerError, PeerProcess
from bench.peers.protocol import Setup

from espalier.errors import ModelFileError

SMALL = Workload("decode-2", SMOLLM2, 2, 8, 10, 1.0)
LARGE = Workload("decode-4", SMOLLM2, 4, 8, 10, 1.0)
TEXT = Prompts(list(range(1000)))

Call = Callable[[str, list[list[int]], int], float]  # peer, prompts, tokens: seconds


class FakeProcess:
    """A peer whose clock is made up, and which must be awake while it works and still otherwise."""

    def __init__(self, name: str, call: Call, log: list[str]) -> None:
        self._name, self._call, self._log = name, call, log
        self.process_id = os.getpid()
        self.facts: dict[str, Any] = {}
        self.is_awake = True

    def start(self, setup: Setup) -> float:
        self._log.append(f"start {self._name}")
        if setup.model == "refused":
            raise PeerError("no such model")
        return 0.0

    def generate(self, prompts: list[list[int]], num_tokens: int) -> tuple[list[list[int]], float]:
        assert self.is_awake
        return [], self._call(self._name, prompts, num_tokens)

    def thaw(self) -> None:
        self.is_awake = True

    def freeze(self) -> None:
        self.is_awake = False

    def close(self) -> None:
        self._log.append(f"close {self._name}")


def steady(_: str, prompts: list[list[int]], num_tokens: int) -> float:
    return 0.01 * len(prompts) * num_tokens


def run(
    names: list[str],
    workloads: list[Workload],
    call: Call = steady,
    models: Callable[[str, bool], Path] = lambda model, _: Path(model),
    text: Any = TEXT,
) -> tuple[dict[str, Comparison], list[str]]:
    """Comparisons by work, and what happened to the processes."""
    log: list[str] = []
    runner = Runner(Path(), models, 2, lambda name: cast(PeerProcess, FakeProcess(name, call, log)))
    prompts = {work.model: text for work in workloads}
    found = runner.run(names, workloads, prompts, 2)
    runner.close()
    assert log.count("start espalier") <= log.count("close espalier")
    return {one.work.name: one for one in found}, log


def rates(one: Comparison, name: str) -> list[float]:
    """Of all rounds: which of them were disturbed is up to the machine."""
    return [measured.rate for measured in one.figures[name].rounds]


def problem(one: Comparison, name: str) -> str:
    found = one.figures[name].problem
    assert found is not None
    return found


def test_rounds_after_the_first_count_and_one_start_serves_them() -> None:
    found, log = run(["espalier", "vllm"], [SMALL, LARGE])
    for work in (SMALL, LARGE):
        for name in ("espalier", "vllm"):
            assert rates(found[work.name], name) == pytest.approx([100.0, 100.0])
            assert found[work.name].figures[name].problem is None
    assert log == ["start espalier", "start vllm", "close espalier", "close vllm"]


@pytest.mark.parametrize("failing_call", [1, 5])
def test_peer_that_fails_at_one_work_does_the_rest(failing_call: int) -> None:
    calls = 0

    def fails(name: str, prompts: list[list[int]], num_tokens: int) -> float:
        nonlocal calls
        if name == "vllm" and len(prompts) == SMALL.rows:
            calls += 1
            if calls == failing_call:
                raise PeerError("vllm ended with status 7:\n  first\n  out of memory\n")
        return steady(name, prompts, num_tokens)

    found, log = run(["espalier", "vllm"], [SMALL, LARGE], fails)
    assert problem(found["decode-2"], "vllm") == "vllm ended with status 7: out of memory"
    assert found["decode-2"].figures["vllm"].rounds == ()
    assert rates(found["decode-4"], "vllm") == pytest.approx([100.0, 100.0])
    assert found["decode-2"].ratio is None
    assert found["decode-4"].ratio == pytest.approx(1.0)
    assert log.count("start vllm") == 2


def test_peer_that_was_started_again_warms_up_first() -> None:
    calls: list[int] = []

    def fails(name: str, prompts: list[list[int]], num_tokens: int) -> float:
        calls.append(len(prompts))
        if len(prompts) == SMALL.rows and calls.count(SMALL.rows) == 4:  # in the first round
            raise PeerError("died")
        return steady(name, prompts, num_tokens)

    found, _ = run(["espalier"], [SMALL, LARGE], fails)
    assert len(found["decode-4"].figures["espalier"].rounds) == 2
    assert calls.count(LARGE.rows) == 3 * 4  # three rounds and one more warm-up of three calls


def test_peer_that_does_not_start_has_a_reason_at_every_work() -> None:
    found, log = run(
        ["espalier", "vllm"],
        [SMALL, LARGE],
        models=lambda model, is_gguf: Path(model if is_gguf else "refused"),
    )
    for work in (SMALL, LARGE):
        assert problem(found[work.name], "vllm") == "no such model"
        assert found[work.name].figures["espalier"].median is not None
    assert log.count("start vllm") == log.count("close vllm") == 1


def test_export_that_fails_is_a_reason() -> None:
    def models(model: str, is_gguf: bool) -> Path:
        if not is_gguf:
            raise ModelFileError("the disk is full")
        return Path(model)

    found, log = run(["espalier", "vllm"], [SMALL], models=models)
    assert problem(found["decode-2"], "vllm") == "the disk is full"
    assert found["decode-2"].figures["espalier"].median is not None
    assert "start vllm" not in log


def test_text_that_is_too_short_is_a_reason_of_that_work_alone() -> None:
    long = Workload("decode-2-long", SMOLLM2, 2, 5000, 10, 1.0)
    found, _ = run(["espalier", "vllm"], [SMALL, long])
    for name in ("espalier", "vllm"):
        assert "the text has 1000 tokens; over 5000" in problem(found["decode-2-long"], name)
        assert found["decode-2"].figures[name].median is not None
    unread, log = run(["espalier"], [SMALL], text=NoPrompts("no tokenizer"))
    assert problem(unread["decode-2"], "espalier") == "there is no prompt: no tokenizer"
    assert log == []


def test_model_that_a_peer_does_not_read_is_a_reason() -> None:
    gemma = Workload("gemma-decode", GEMMA3, 2, 8, 10, 1.0)
    found, log = run(["espalier", "openvino"], [gemma])
    assert problem(found["gemma-decode"], "openvino") == "openvino does not read gemma3-270m"
    assert "start openvino" not in log


def test_clock_that_runs_backwards_costs_its_round_alone() -> None:
    first: list[float] = []

    def odd(_: str, prompts: list[list[int]], num_tokens: int) -> float:
        if num_tokens == 1:
            first.append(0.01)
        is_odd = num_tokens > 1 and len(first) == 4  # the round after the warm-up
        return 0.001 if is_odd else steady("", prompts, num_tokens)

    found, log = run(["espalier"], [SMALL], odd)
    figure = found["decode-2"].figures["espalier"]
    assert len(figure.rounds) == 1
    assert "round 1 was thrown away" in problem(found["decode-2"], "espalier")
    assert log == ["start espalier", "close espalier"]


def test_reason_is_one_line() -> None:
    assert reason(ValueError("one\ntwo\n three \n")) == "one three"
    assert reason(ValueError("one")) == "one"
    assert reason(ValueError()) == "ValueError"
