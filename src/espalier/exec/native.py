"""The native executor: runs a Plan in C++, one call per step, without the interpreter's lock.

It checks options and arrays, turns native errors into Espalier's, and owns the native object.
Arithmetic is in native/; what a Plan means is in exec/plan.py.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from espalier import _native, settings
from espalier.errors import (
    BackendError,
    CapacityError,
    EngineClosedError,
    ModelFileError,
    UnsupportedError,
    UserInputError,
)
from espalier.exec.executor import (
    ExecutorOptions,
    Float32Array,
    Int32Array,
    StepBatch,
    WeightSource,
)
from espalier.exec.instruction_sets import chosen_isa
from espalier.exec.kv_format import resolve_kv_dtype
from espalier.exec.memory import require_memory
from espalier.exec.native_graph import build_graph
from espalier.exec.plan import Plan
from espalier.exec.processors import usable_processors

_MEMORY_ADVICE = (
    "Lower num_slots (the KV pool; max_total_tokens of an Engine) or max_rows (scratch; "
    "chunked_prefill_size), use weights int4 or kv_dtype int8, or free memory."
)
_WEIGHTS = ("auto", "int8", "int4", "bf16", "f32")
_MAX_SIZE = 2**31 - 2  # slots and rows are int32
_LARGE_LOGITS_BYTES = 256 << 20  # from here on it is asked first whether there is memory


class OpTime(NamedTuple):
    """Operations of one kind, summed up; the first entry of a profile is the whole steps, "step".

    `num_bytes` of weights and KV, each read once at best; `multiply_adds` of weights or KV with
    activations.
    """

    name: str
    calls: int
    seconds: float
    num_bytes: int
    multiply_adds: int


class NativeExecutor:
    """Runs steps of one Plan in native code (see Executor for the protocol).

    The same bits come out on every instruction set, for every number of threads and for every way
    to cut the rows into steps: integer dot products are exact, and float sums run in an order that
    positions alone decide.

    Raises UnsupportedError or UserInputError for options that cannot be honoured, ModelFileError
    for a tensor that does not fit, CapacityError where memory would not suffice. `run` and `close`
    may be called from any thread; they wait for each other.

    Attributes:
        isa: the instruction set in use.
    """

    def __init__(self, plan: Plan, weights: WeightSource, options: ExecutorOptions) -> None:
        self.isa = chosen_isa(options.isa)
        native_options = _native_options(options, self.isa)
        graph = build_graph(plan, weights)
        self.plan = plan
        self.num_slots = options.num_slots
        self._lock = threading.Lock()
        try:
            needed = _native.memory_needed(graph, native_options)
        except ValueError as error:
            raise CapacityError(
                f"num_slots {options.num_slots} and max_rows {options.max_rows} are too large: "
                f"{error}. {_MEMORY_ADVICE}"
            ) from error
        require_memory(
            dict(zip(("weights", "kv_pool", "scratch"), needed, strict=True)), _MEMORY_ADVICE
        )
        self._native: _native.Executor | None = _make_executor(graph, native_options)
        self._thread_pool = self._native.thread_pool

    def run(self, batch: StepBatch) -> Float32Array:
        """Runs one step and returns logits, `[len(batch.logit_rows), vocab_size]`.

        The array may be overwritten by the next run. Raises UserInputError for a batch that breaks
        StepBatch's rules, CapacityError where there is no memory for the logits or for partial
        results of attention. Both are taken first, so that nothing has been computed or written
        then. (Later a step takes some KB at most; a message about these says what is left behind.)
        """
        arrays = (
            _int32("token_ids", batch.token_ids),
            _int32("positions", batch.positions),
            _int32("row_starts", batch.row_starts),
            _int32("slot_ids", batch.slot_ids),
            _int32("slot_starts", batch.slot_starts),
            _int32("logit_rows", batch.logit_rows),
            _int32_or_none("wanted_starts", batch.wanted_starts),
            _int32_or_none("wanted_ids", batch.wanted_ids),
        )
        logits_bytes = len(batch.logit_rows) * self.plan.geometry.vocab_size * 4
        if logits_bytes >= _LARGE_LOGITS_BYTES:
            require_memory({"logits": logits_bytes}, "Ask for the logits of fewer rows at once.")
        with self._lock:
            executor = self._open()
            try:
                return executor.run(*arrays)
            except ValueError as error:
                raise UserInputError(f"{error}.") from error
            except _native.StepMemoryError as error:
                raise CapacityError(
                    f"a step of {batch.num_rows} rows, {len(batch.logit_rows)} of them with "
                    f"logits, was not begun: {error}."
                ) from error
            except MemoryError as error:
                raise CapacityError(
                    f"memory ran out within a step of {batch.num_rows} rows. The slots that it "
                    "writes may hold anything; run it again when there is more memory."
                ) from error
            except RuntimeError as error:
                raise BackendError(f"{error}.") from error

    def memory_bytes(self) -> dict[str, int]:
        """Bytes held: keys "weights", "kv_pool", "scratch".

        Pages of the pool and of scratch are taken from the system when first written.
        """
        with self._lock:
            weights, kv_pool, scratch = self._open().memory_use()
        return {"weights": weights, "kv_pool": kv_pool, "scratch": scratch}

    @property
    def thread_pool(self) -> _native.ThreadPool:
        """The threads, for whoever computes between two steps; alone once this is closed."""
        return self._thread_pool

    def start_profile(self) -> None:
        """Takes the time of each operation from now on; free where nobody asks for it."""
        with self._lock:
            self._open().start_profile()

    def take_profile(self) -> list[OpTime]:
        """What was measured since `start_profile`, which ends: whole steps, then operations.

        Raises UserInputError where no profile was started.
        """
        with self._lock:
            try:
                return [OpTime(*entry) for entry in self._open().take_profile()]
            except RuntimeError as error:
                raise UserInputError(f"{error}; call start_profile first.") from error

    def close(self) -> None:
        """Frees weights, pool and threads; a later run raises EngineClosedError."""
        with self._lock:
            if self._native is not None:
                self._native = None
                self._thread_pool.end_helpers()

    def _open(self) -> _native.Executor:
        if self._native is None:
            raise EngineClosedError("the executor is closed; make a new engine.")
        return self._native


def _make_executor(graph: _native.Graph, options: _native.Options) -> _native.Executor:
    try:
        return _native.Executor(graph, options)
    except ValueError as error:
        raise ModelFileError(f"{error}.") from error
    except MemoryError as error:
        raise CapacityError(
            f"memory ran out while weights were loaded. {_MEMORY_ADVICE}"
        ) from error
    except RuntimeError as error:
        raise BackendError(f"the executor's threads could not be started: {error}.") from error


def _native_options(options: ExecutorOptions, isa: str) -> _native.Options:
    weights = _weights(options.weights)
    num_threads, num_processors = options.num_threads, usable_processors()
    if num_threads is None:
        num_threads = settings.num_threads() or min(num_processors, settings.MAX_THREADS)
    return _native.Options(
        _whole("num_slots", options.num_slots, _MAX_SIZE),
        _whole("max_rows", options.max_rows, _MAX_SIZE),
        weights,
        resolve_kv_dtype(options.kv_dtype, weights),
        _whole("num_threads", num_threads, settings.MAX_THREADS),
        num_processors,
        isa,
    )


def _weights(given: str) -> str:
    if given not in _WEIGHTS:
        raise UnsupportedError(
            f"weights is {given!r}; the native executor offers {', '.join(_WEIGHTS)}."
        )
    return given


def _whole(name: str, value: int, largest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
        raise UserInputError(f"{name} is {value!r}; a whole number from 1 to {largest} is allowed.")
    return value


def _int32(name: str, array: Int32Array) -> Int32Array:
    if not isinstance(array, np.ndarray) or array.dtype != np.int32 or array.ndim != 1:
        found = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
        raise UserInputError(f"bad step: {name} is {found}; a flat int32 array is needed.")
    return np.ascontiguousarray(array)


def _int32_or_none(name: str, array: Int32Array | None) -> Int32Array | None:
    return None if array is None else _int32(name, array)
