"""Libraries that make masks, each in a process of its own: start them, give them work in turn."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.peers.process import REPOSITORY

ADAPTERS: Mapping[str, str] = {
    "espalier": "bench.constrain.espalier_masks",
    "llguidance": "bench.constrain.llguidance_masks",
    "xgrammar": "bench.constrain.xgrammar_masks",
    "outlines-core": "bench.constrain.outlines_masks",
}
_ESPALIER = "espalier"
_ENVIRONMENT = "masks"  # of the other ones, see scripts/bench-peers


class MaskProcess:
    """One library. Use it as a context manager: it is killed at the end."""

    def __init__(self, name: str, peers_folder: Path, folder: Path) -> None:
        self.name = name
        self.resident_bytes = 0  # that its grammars took
        self._folder = folder
        python = Path(sys.executable)
        if name != _ESPALIER:
            python = peers_folder / _ENVIRONMENT / "bin" / "python"
            if not python.exists():
                raise SystemExit(f"{python} is missing; run scripts/bench-peers {_ENVIRONMENT}")
        paths = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'src'}"
        self._log = (folder / f"{name}.log").open("w", encoding="utf-8")
        self._process = subprocess.Popen(
            [str(python), "-m", ADAPTERS[name]],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            text=True,
        )

    def start(self, vocabulary: Path) -> dict[str, Any]:
        """Reads a vocabulary; returns facts such as the version."""
        facts: dict[str, Any] = self._ask({"op": "start", "vocabulary": str(vocabulary)})["facts"]
        return facts

    def measure(self, work: Path) -> list[dict[str, Any]]:
        """What was measured of each schema."""
        results = self._folder / f"{self.name}.results.json"
        answer = self._ask({"op": "measure", "work": str(work), "results": str(results)})
        self.resident_bytes += answer["resident_bytes"]
        measured: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))
        return measured

    def __enter__(self) -> MaskProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # what a dead process never read
                stream.close()

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.flush()
            told = Path(self._log.name).read_text(encoding="utf-8", errors="replace")[-1500:]
            raise SystemExit(f"{self.name} died; its last words:\n{told}")
        answer: dict[str, Any] = json.loads(line)
        return answer
