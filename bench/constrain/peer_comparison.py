"""Constrained output of Espalier and other programs, in alternating rounds of one run."""

from __future__ import annotations

import argparse
import os
from typing import Any

from bench.constrain.peer_jobs import jobs
from bench.constrain.peer_report import report
from bench.constrain.peer_rounds import ConstrainedRounds, Peer
from bench.engine.compare import chosen_peers
from bench.peers.catalog import ESPALIER, PEERS, launch
from bench.peers.models import model_path

from espalier.loaders.model import load_model


def compare_peers(options: argparse.Namespace) -> dict[str, Any]:
    """Figures for each job, and what the peers said of themselves.

    `options` are those of json_decoding.py. Exits where a peer is unknown or not installed.
    """
    peers = list(dict.fromkeys(map(Peer.parse, [ESPALIER, *options.peers.split(",")])))
    chosen_peers(",".join(peer.name for peer in peers), options.peers_dir)
    if options.temperature != 0:
        raise SystemExit("--temperature is given with --peers; these are compared at 0 only.")
    tokenizer = load_model(model_path(options.model, True, options.peers_dir)).tokenizer
    rounds = ConstrainedRounds(
        lambda is_gguf: model_path(options.model, is_gguf, options.peers_dir),
        lambda text: tokenizer.encode(text, allow_special=True),
        options.threads or len(os.sched_getaffinity(0)),
        options.rounds,
        launch_peer=lambda peer: launch(PEERS[peer.name], options.peers_dir),
    )
    try:
        todo = jobs(options.kinds.split(","), options.rows, options.cached)
        return {**report(rounds.run(peers, todo), tokenizer), "peers": rounds.facts}
    finally:
        rounds.close()
