"""Makes an executor by name, and knows what its KV pool will take."""

from __future__ import annotations

from espalier.errors import UserInputError
from espalier.exec.executor import Executor, ExecutorOptions, WeightSource
from espalier.exec.kv_format import kv_slot_bytes, resolve_kv_dtype
from espalier.exec.plan import Geometry, Plan

EXECUTOR_KINDS = ("native", "reference")


def make_executor(
    kind: str, plan: Plan, weights: WeightSource, options: ExecutorOptions
) -> Executor:
    """An executor of that kind: "native" (C++), or "reference" (numpy, slow, the oracle).

    Raises UserInputError for another kind, and what the executor raises.
    """
    if kind == "native":
        from espalier.exec.native import NativeExecutor

        return NativeExecutor(plan, weights, options)
    if kind == "reference":
        from espalier.exec.reference import ReferenceExecutor

        return ReferenceExecutor(plan, weights, options)
    raise _unknown(kind)


def slot_bytes(kind: str, geometry: Geometry, weights: str, kv_dtype: str) -> int:
    """Bytes that one slot of the KV pool takes in an executor of that kind with these options.

    Raises UserInputError for another kind, UnsupportedError for an unknown `kv_dtype`.
    """
    if kind not in EXECUTOR_KINDS:
        raise _unknown(kind)
    held = resolve_kv_dtype(kv_dtype, weights)
    return kv_slot_bytes(geometry, "f32" if kind == "reference" else held)  # it rounds float32


def _unknown(kind: str) -> UserInputError:
    return UserInputError(f"executor {kind!r} is unknown; allowed are {', '.join(EXECUTOR_KINDS)}.")
