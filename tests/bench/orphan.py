"""Starts a fake peer, freezes it, prints its process id and waits to be killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.peers.process import PeerProcess
from bench.peers.protocol import Setup

if __name__ == "__main__":
    log = Path(sys.argv[1])
    peer = PeerProcess("fake", Path(sys.executable), "tests.bench.fake_peer", log, {})
    peer.start(Setup("works"))
    peer.freeze()
    print(peer.process_id, flush=True)
    time.sleep(60)
