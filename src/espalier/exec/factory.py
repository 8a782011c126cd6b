"""Makes an executor by name."""

from __future__ import annotations

from espalier.errors import UserInputError
from espalier.exec.executor import Executor, ExecutorOptions, WeightSource
from espalier.exec.plan import Plan

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
    raise UserInputError(f"executor {kind!r} is unknown; allowed are {', '.join(EXECUTOR_KINDS)}.")
