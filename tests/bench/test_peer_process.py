"""The two sides of the adapters' protocol, with an adapter that needs no model."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from bench.peers.process import REPOSITORY, PeerError, PeerProcess, PeerRefusedError
from bench.peers.protocol import Setup


def launch(tmp_path: Path) -> PeerProcess:
    log = tmp_path / "logs" / "fake.log"
    return PeerProcess("fake", Path(sys.executable), "tests.bench.fake_peer", log, {})


def test_peer_answers_frozen_in_between_or_not(tmp_path: Path) -> None:
    with launch(tmp_path) as peer:
        assert peer.start(Setup("works", num_threads=3)) >= 0
        assert peer.facts == {"version": "1", "threads": 3}
        peer.freeze()
        peer.thaw()
        outputs, seconds = peer.generate([[1], [4, 7]], 2)
        assert outputs == [[2, 3], [8, 9]]
        assert seconds >= 0
        logits = peer.logits([5, 6], tmp_path / "logits.npy")
        assert np.array_equal(logits, [[5, -5], [6, -6]])
        peer.freeze()  # closing wakes it


def test_forms_travel_and_their_outputs_have_any_length(tmp_path: Path) -> None:
    with launch(tmp_path) as peer:
        peer.start(Setup("works"))
        outputs, _ = peer.generate([[1], [2]], 3, [{"regex": "3"}, {"gbnf": "x", "regex": "1"}])
        assert outputs == [[1, 1, 1], [1]]
        with pytest.raises(PeerError, match=r"outputs of \[1, 4\] tokens came back"):
            peer.generate([[1], [2]], 3, [{"regex": "4"}, {"regex": "1"}])
        with pytest.raises(PeerRefusedError, match="takes regex, and the form is given as gbnf"):
            peer.generate([[1]], 3, [{"gbnf": "x"}])
        assert peer.generate([[1]], 1)[0] == [[2]]


def test_refusal_says_why(tmp_path: Path) -> None:
    with launch(tmp_path) as peer, pytest.raises(PeerRefusedError, match="no such model here"):
        peer.start(Setup("refuses"))


@pytest.mark.parametrize(
    ("mood", "message"),
    [
        ("fails", "ValueError: out of tokens"),
        ("short", r"1 outputs of \[1\] tokens came back for 1 prompts and 2 tokens"),
    ],
)
def test_failure_is_told_and_the_peer_lives_on(mood: str, message: str, tmp_path: Path) -> None:
    with launch(tmp_path) as peer:
        peer.start(Setup(mood))
        for _ in range(2):
            with pytest.raises(PeerError, match=message):
                peer.generate([[1]], 2)


def test_death_is_told_with_the_last_words(tmp_path: Path) -> None:
    with launch(tmp_path) as peer:
        peer.start(Setup("dies"))
        with pytest.raises(PeerError, match=r"(?s)ended with status 7.*last words"):
            peer.generate([[1]], 2)
        with pytest.raises(PeerError, match="ended with status 7"):
            peer.generate([[1]], 2)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a signal that Linux alone sends")
def test_frozen_peer_ends_with_a_bench_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench.orphan", str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as bench:
        assert bench.stdout is not None
        peer = int(bench.stdout.readline())
        bench.kill()
    end = time.monotonic() + 30
    while _is_running(peer):
        assert time.monotonic() < end, "the peer outlived the bench"
        time.sleep(0.01)


def _is_running(process_id: int) -> bool:
    status = Path(f"/proc/{process_id}/stat")
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
