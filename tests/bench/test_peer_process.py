"""The two sides of the adapters' protocol, with an adapter that needs no model."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from bench.peers.process import PeerError, PeerProcess, PeerRefusedError
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
