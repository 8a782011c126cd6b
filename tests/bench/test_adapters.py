"""Adapters of peers, with stand-ins for the peers' libraries."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from bench.engine.workloads import WORKLOADS, groups, joint_setup
from bench.peers.protocol import Setup
from bench.peers.vllm_peer import VllmPeer
from bench.peers.xllamacpp_peer import context_cells


def test_every_slot_of_the_server_has_room_for_the_longest_sequence() -> None:
    for group in groups(WORKLOADS):
        setup = joint_setup([work.setup("m", 2) for work in group])
        cells_of_a_slot, rest = divmod(context_cells(setup), setup.max_rows)
        assert rest == 0
        assert cells_of_a_slot % 256 == 0
        for work in group:
            assert cells_of_a_slot >= work.context + work.num_tokens + 1


def test_vllm_computes_with_the_threads_of_the_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def make(**_: Any) -> None:
        seen["threads"] = os.environ["OMP_NUM_THREADS"]

    def num_threads() -> int:
        return int(os.environ["OMP_NUM_THREADS"])

    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setitem(sys.modules, "vllm", SimpleNamespace(LLM=make, __version__="1"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(get_num_threads=num_threads))
    facts = VllmPeer().start(Setup("m", num_threads=3))
    assert seen["threads"] == "3"
    assert facts["threads"] == 3
