"""A peer in a process of its own, seen from the bench: start it, ask it, keep it still, end it."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from bench.peers.protocol import Form, Setup, setup_request
from numpy.typing import NDArray

REPOSITORY = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 600.0
_CALL_TIMEOUT_S = 300.0
_STOP_TIMEOUT_S = 20.0
_LOG_TAIL = 1200


class PeerError(Exception):
    """A peer failed, died or took too long; the message ends with what it printed last."""


class PeerRefusedError(PeerError):
    """A peer cannot do what was asked."""


class PeerProcess:
    """One adapter process.

    Between calls it can be frozen (SIGSTOP), so that threads which spin or tidy up do not disturb
    what is measured elsewhere. Use it as a context manager: it is killed at the end.
    """

    def __init__(
        self, name: str, python: Path, module: str, log: Path, environment: dict[str, str]
    ) -> None:
        self.name = name
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as errors:
            self._process = subprocess.Popen(
                [str(python), "-m", module],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._answers = bytearray()
        self.facts: dict[str, Any] = {}

    @property
    def process_id(self) -> int:
        """Of the adapter; it leads a process group of its own."""
        return self._process.pid

    def start(self, setup: Setup) -> float:
        """Loads the model; returns the seconds it took."""
        answer = self._ask(setup_request(setup), _START_TIMEOUT_S)
        self.facts = answer["facts"]
        return float(answer["seconds"])

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> tuple[list[list[int]], float]:
        """Greedy continuations, and the wall time of the call inside the adapter in seconds.

        Raises PeerRefusedError where the peer cannot hold one of the forms; it lives on.
        """
        request = {"op": "generate", "prompts": prompts, "num_tokens": num_tokens}
        if forms is not None:
            request["forms"] = forms
        answer = self._ask(request, _CALL_TIMEOUT_S)
        return answer["outputs"], float(answer["seconds"])

    def logits(self, token_ids: list[int], path: Path) -> NDArray[np.float32]:
        """Logits at each position, a map of the file that the adapter wrote."""
        self._ask({"op": "logits", "token_ids": token_ids, "path": str(path)}, _CALL_TIMEOUT_S)
        logits: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
        return logits

    def freeze(self) -> None:
        """Stops all its threads until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """Ends it, by force where it does not end by itself."""
        if self._process.poll() is None:
            self.thaw()
            with contextlib.suppress(PeerError, subprocess.TimeoutExpired):
                self._ask({"op": "stop"}, _STOP_TIMEOUT_S)
                self._process.wait(_STOP_TIMEOUT_S)
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # what a dead peer never read
                pipe.close()

    def __enter__(self) -> PeerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(self._died()) from None
        line = self._line(request["op"], timeout_s)
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise PeerError(f"{self.name} answered what is no JSON: {line[:100]!r}") from None
        if "error" in answer:
            if answer["is_refused"]:
                raise PeerRefusedError(f"{self.name}: {answer['error']}")
            raise PeerError(f"{self.name} failed: {answer['error']} (log: {self._log})")
        return answer

    def _line(self, operation: str, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        end = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._answers:
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise PeerError(f"{self.name}: {operation} took over {timeout_s:.0f} s")
                data = os.read(self._process.stdout.fileno(), 1 << 20)
                if not data:
                    raise PeerError(self._died())
                self._answers += data
        line, _, rest = bytes(self._answers).partition(b"\n")
        self._answers = bytearray(rest)
        return line

    def _died(self) -> str:
        status = self._process.wait()
        text = self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]
        return f"{self.name} ended with status {status}; its last words (log: {self._log}):\n{text}"
