"""The seam between the engine and whatever computes a step: weights in, logits out.

An executor owns the weights and the KV arrays of its pool (`[slot, kv_head, head_dim]` per layer);
the engine owns slot ids and never touches an array.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from espalier import _native
from espalier.exec.plan import Plan

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]

# Rows that want more tokens than this should want all. With 16 rows of SmolLM2 in AMX tiles, where
# the whole head costs least, 256 tokens of its own for each row take 0.9 of its time and 512 take
# 1.3; one row gains with 1,024 still (bench/engine/wanted.py, docs/benchmarks.md).
MAX_WANTED_IDS = 256


class TensorType(str, Enum):
    """How a tensor is stored in a model file; the values are GGUF's names."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q8_0 = "Q8_0"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q5_0 = "Q5_0"
    Q5_1 = "Q5_1"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"


@dataclass(frozen=True, slots=True)
class RawTensor:
    """A tensor as it lies in the file: `data` is a flat read-only byte view of the mmap.

    `shape` is row-major with the fastest dimension last: (out_features, in_features).
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


class WeightSource(Protocol):
    """Where an executor takes its weights from."""

    def tensor(self, name: str) -> RawTensor:
        """The tensor of that name; raises ModelFileError where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class StepBatch:
    """One step: rows of tokens that belong to sequences.

    Rows of a sequence stand together and in order of position; sequence i has the rows
    `row_starts[i] : row_starts[i + 1]`. Its KV lies in the slots
    `slot_ids[slot_starts[i] : slot_starts[i + 1]]`, one per position from 0 to the position of its
    last row, so row r at position p writes slot `slot_ids[slot_starts[i] + p]` and sees the slots
    of positions 0 to p.

    Of row i of the logits only those of the tokens `wanted_ids[wanted_starts[i] :
    wanted_starts[i + 1]]` are wanted, in any order; where there are none, all are. These hold the
    bits that they have when all are wanted. The others of such a row are not defined (any bits, not
    even numbers), so that nothing is spent on them: who reads the row must be told which tokens
    count. Both arrays are None where all logits of all rows are wanted.
    """

    token_ids: Int32Array  # [rows]
    positions: Int32Array  # [rows]
    row_starts: Int32Array  # [sequences + 1]
    slot_ids: Int32Array  # [sum of context lengths]
    slot_starts: Int32Array  # [sequences + 1]
    logit_rows: Int32Array  # [n], rows whose logits are wanted, ascending
    wanted_starts: Int32Array | None = None  # [n + 1]
    wanted_ids: Int32Array | None = None  # [sum of wanted tokens]

    @property
    def num_rows(self) -> int:
        """Token rows in this step."""
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class ExecutorOptions:
    """How an executor stores and computes.

    Attributes:
        num_slots: token slots of the KV pool.
        weights: "int8", "int4", "bf16", "f32", or "auto": 4-bit tensors of the file as int4, all
            others as int8 (exact integer products; docs/decisions.md).
        kv_dtype: "bf16", "int8" (a scale per slot and key head), "f32", or "auto" (f32 for f32
            weights, else bf16).
        num_threads: threads; None for ESPALIER_THREADS, else every processor that the process may
            use.
        isa: "auto", "portable", "neon", "avx2", "avx512", "avx512vnni", "avx512amx"; native
            only.
        max_rows: most rows that one step may have.
    """

    num_slots: int
    weights: str = "auto"
    kv_dtype: str = "auto"
    num_threads: int | None = None
    isa: str = "auto"
    max_rows: int = 2048


class Executor(Protocol):
    """Runs steps of one Plan. Not thread-safe: one step at a time."""

    plan: Plan
    num_slots: int

    def run(self, batch: StepBatch) -> Float32Array:
        """Runs one step and returns logits, `[len(batch.logit_rows), vocab_size]`.

        Where a row wants some tokens only, its other logits are undefined. The array is the
        executor's own and is overwritten by the next run. A row's logits depend on the tokens at
        positions 0 to its own alone, bit for bit: never on the other rows, on how the positions
        were split into steps, on which slots hold them, or on which tokens are wanted.
        """
        ...

    @property
    def isa(self) -> str:
        """The instruction set it computes with; "auto" where it leaves that to others."""
        ...

    @property
    def thread_pool(self) -> _native.ThreadPool | None:
        """The threads it computes on, for whoever computes between two steps; None without any."""
        ...

    def memory_bytes(self) -> dict[str, int]:
        """Bytes held: keys "weights", "kv_pool", "scratch"."""
        ...

    def close(self) -> None:
        """Frees weights, pool and threads; a later run raises EngineClosedError."""
        ...
