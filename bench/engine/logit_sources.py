"""Where quality.py takes logits from: Espalier's executor, or llama.cpp through its adapter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import numpy as np
from bench.peers.process import PeerProcess
from numpy.typing import NDArray

from espalier.exec.executor import ExecutorOptions, StepBatch
from espalier.exec.factory import make_executor
from espalier.loaders.model import LoadedModel

Float32Array = NDArray[np.float32]


class LogitSource(Protocol):
    """Gives the logits of every position of a window, some rows at a time."""

    def window(self, token_ids: list[int], rows: int) -> Iterator[Float32Array]:
        """Logits of `rows` positions after the other, the last block may be shorter.

        A block is valid until the next one is asked for.
        """
        ...

    def close(self) -> None:
        """Frees what it holds."""
        ...


class ExecutorLogits:
    """Espalier's native executor with one weight format and one KV format.

    Raises UserInputError or UnsupportedError for a format that it refuses.
    """

    def __init__(
        self, model: LoadedModel, weights: str, kv_dtype: str, window: int, rows: int
    ) -> None:
        options = ExecutorOptions(
            num_slots=window, weights=weights, kv_dtype=kv_dtype, max_rows=rows
        )
        self._executor = make_executor("native", model.plan, model.weights, options)

    def window(self, token_ids: list[int], rows: int) -> Iterator[Float32Array]:
        for first in range(0, len(token_ids), rows):
            end = min(len(token_ids), first + rows)
            batch = StepBatch(
                token_ids=np.array(token_ids[first:end], dtype=np.int32),
                positions=np.arange(first, end, dtype=np.int32),
                row_starts=np.array([0, end - first], dtype=np.int32),
                slot_ids=np.arange(end, dtype=np.int32),
                slot_starts=np.array([0, end], dtype=np.int32),
                logit_rows=np.arange(end - first, dtype=np.int32),
            )
            yield self._executor.run(batch)

    def close(self) -> None:
        self._executor.close()


class PeerLogits:
    """A peer that gives logits; a window's lie in a file while it is read."""

    def __init__(self, process: PeerProcess, folder: Path) -> None:
        self._process = process
        self._file = folder / f"{process.name}.npy"

    def window(self, token_ids: list[int], rows: int) -> Iterator[Float32Array]:
        logits = self._process.logits(token_ids, self._file)
        for first in range(0, len(token_ids), rows):
            yield np.asarray(logits[first : first + rows])

    def close(self) -> None:
        self._process.close()
        self._file.unlink(missing_ok=True)
