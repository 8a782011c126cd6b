"""Which peers there are: the adapter of each, where its Python lies, which models it reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.peers.process import REPOSITORY, PeerProcess

from espalier.settings import user_cache_dir

SMOLLM2, GEMMA3 = "smollm2", "gemma3-270m"
ESPALIER = "espalier"


@dataclass(frozen=True)
class Peer:
    """A program to compare with.

    Attributes:
        name: its name here and that of its virtual environment.
        module: its adapter.
        reads_gguf: false where it needs a Hugging Face folder.
        models: aliases of the models that it can load.
        serves_all_sizes: one start, made for the largest work, is as fast at the smallest.
        environment: variables that its process gets.
    """

    name: str
    module: str
    reads_gguf: bool
    models: tuple[str, ...] = (SMOLLM2, GEMMA3)
    serves_all_sizes: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

PEERS: Mapping[str, Peer] = {
    peer.name: peer
    for peer in (
        Peer(
            ESPALIER,
            "bench.peers.espalier_peer",
            True,
            environment={"PYTHONPATH": str(REPOSITORY / "src")},
        ),
        Peer(
            "vllm",
            "bench.peers.vllm_peer",
            False,
            serves_all_sizes=True,
            environment={
                **_OFFLINE,
                "VLLM_CPU_KVCACHE_SPACE": "2",
                "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
                "VLLM_LOGGING_LEVEL": "WARNING",
                "VLLM_NO_USAGE_STATS": "1",
            },
        ),
        # Its GGUF reader knows Llama and Qwen; Gemma it refuses.
        Peer(
            "openvino", "bench.peers.openvino_peer", True, models=(SMOLLM2,), serves_all_sizes=True
        ),
        Peer("llamacpp", "bench.peers.llamacpp_peer", True),
        Peer("xllamacpp", "bench.peers.xllamacpp_peer", True),
        Peer("transformers", "bench.peers.transformers_peer", False, environment=_OFFLINE),
    )
}


def default_folder() -> Path:
    """Where scripts/bench-peers puts the environments unless told otherwise."""
    given = os.environ.get("ESPALIER_BENCH_PEERS")
    return Path(given).expanduser() if given else user_cache_dir() / "espalier-bench-peers"


def python_of(peer: Peer, folder: Path) -> Path | None:
    """The interpreter that runs a peer; None where it is not installed."""
    if peer.name == ESPALIER:
        return Path(sys.executable)
    python = folder / peer.name / "bin" / "python"
    return python if (folder / peer.name / "ready").exists() and python.exists() else None


def launch(peer: Peer, folder: Path) -> PeerProcess:
    """Starts the process of an installed peer; its model is loaded by `start`."""
    python = python_of(peer, folder)
    assert python is not None, f"{peer.name} is not installed"
    log = folder / "logs" / f"{peer.name}-run.log"
    return PeerProcess(peer.name, python, peer.module, log, dict(peer.environment))
