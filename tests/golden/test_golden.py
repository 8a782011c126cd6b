"""Real models against golden logits made by transformers (make_golden.py says what is stored).

All prompts run as one batch, first whole, then token by token for the greedy continuations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from espalier.exec.executor import ExecutorOptions, Float32Array, Int32Array, StepBatch
from espalier.exec.factory import make_executor
from espalier.loaders.gguf import GgufFile
from espalier.models.architectures import plan_from_gguf

DATA = Path(__file__).parent / "data"
PROMPTS: list[dict[str, Any]] = json.loads((DATA / "prompts.json").read_text())
CONTINUATION_LENGTH = 32
ROWS_AT_ONCE = 128  # logits of Gemma's vocabulary take 1 MB a row
MOST_FLOAT_ERROR = 1e-3  # of a logit; they reach 30

# model -> least cosine of centred logits over all positions, least share of equal top tokens
INT8_BOUNDS = {"smollm2": (0.998, 0.95), "gemma3": (0.996, 0.98)}


@dataclass(frozen=True)
class Found:
    """What an executor gave for the golden positions, in their order."""

    sample: Float32Array  # [positions, sample]
    top_logits: Float32Array  # [positions, 8], of the golden top ids
    top_id: Int32Array  # [positions], the most probable token
    norm: Float32Array  # [positions]
    logsumexp: NDArray[np.float64]  # [positions]


class Runner:
    """Runs the prompts of one model; prompt i has its own slots, one per position."""

    def __init__(self, model: str, path: Path, weights: str) -> None:
        self.golden: Mapping[str, NDArray[Any]] = dict(np.load(DATA / f"golden_{model}.npz"))
        self.tokens = [list(prompt[model]) for prompt in PROMPTS]
        self.computed = [0] * len(self.tokens)
        self.room = max(map(len, self.tokens)) + CONTINUATION_LENGTH
        file = GgufFile(path)
        plan = plan_from_gguf(model, file.metadata, file.tensor_shapes)
        options = ExecutorOptions(
            num_slots=self.room * len(self.tokens), weights=weights, max_rows=ROWS_AT_ONCE
        )
        self.executor = make_executor("native", plan, file, options)

    def step(self, prompts: list[int], ends: list[int], logit_rows: list[int]) -> Float32Array:
        """Computes each prompt up to its end; logits of the given rows."""
        spans = [
            (prompt, self.computed[prompt], end) for prompt, end in zip(prompts, ends, strict=True)
        ]
        batch = StepBatch(
            token_ids=joined(self.tokens[prompt][first:end] for prompt, first, end in spans),
            positions=joined(range(first, end) for _, first, end in spans),
            row_starts=np.cumsum([0] + [end - first for _, first, end in spans], dtype=np.int32),
            slot_ids=joined(self.room * prompt + np.arange(end) for prompt, _, end in spans),
            slot_starts=np.cumsum([0, *ends], dtype=np.int32),
            logit_rows=np.array(logit_rows, dtype=np.int32),
        )
        for prompt, _, end in spans:
            self.computed[prompt] = end
        return self.executor.run(batch)

    def prefill(self, prompts: Iterable[int]) -> Found:
        """Computes the prompts in chunks."""
        wanted = self.golden["positions"].tolist()
        rows: list[tuple[Any, ...]] = []
        for prompt in prompts:
            tokens = self.tokens[prompt]
            for first in range(0, len(tokens), ROWS_AT_ONCE):
                end = min(first + ROWS_AT_ONCE, len(tokens))
                here = [place - first for owner, place in wanted if owner == prompt]
                logits = self.step([prompt], [end], [row for row in here if 0 <= row < end - first])
                rows += [self.summary(len(rows) + i, row) for i, row in enumerate(logits)]
        return Found(*(np.array(column) for column in zip(*rows, strict=True)))

    def summary(self, index: int, logits: Float32Array) -> tuple[Any, ...]:
        """What is compared of the logits of a golden position."""
        top_id = logits.argmax()
        exponentials = np.exp(logits - logits[top_id])
        return (
            logits[self.golden["sample_ids"]],
            logits[self.golden["top_ids"][index]],
            top_id,
            np.linalg.norm(logits),
            logits[top_id] + np.log(exponentials.sum(dtype=np.float64)),
        )

    def continuations(self, first_tokens: list[int]) -> Int32Array:
        """Greedy tokens after each prompt, all prompts together, [prompts, 32]."""
        everyone = list(range(len(self.tokens)))
        for prompt, token in enumerate(first_tokens):
            self.tokens[prompt].append(token)
        for _ in range(CONTINUATION_LENGTH - 1):
            logits = self.step(everyone, [len(tokens) for tokens in self.tokens], everyone)
            for prompt, token in enumerate(logits.argmax(axis=1)):
                self.tokens[prompt].append(int(token))
        return np.array([tokens[-CONTINUATION_LENGTH:] for tokens in self.tokens], dtype=np.int32)


def joined(parts: Iterable[Any]) -> Int32Array:
    """The parts one after the other."""
    return np.concatenate([np.asarray(part, dtype=np.int32) for part in parts])


def cosines(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """Cosine of each row of a with that of b."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    result: NDArray[np.float64] = (a * b).sum(axis=1) / norms
    return result


def centred(a: NDArray[Any]) -> NDArray[np.float64]:
    """Rows without their mean: a common offset makes any two rows of logits look alike."""
    wide: NDArray[np.float64] = a.astype(np.float64)
    wide -= wide.mean(axis=1, keepdims=True)
    return wide


@pytest.fixture(params=["smollm2", "gemma3"])
def model(request: pytest.FixtureRequest) -> tuple[str, Path]:
    name: str = request.param
    return name, request.getfixturevalue(f"{name}_path")


@pytest.mark.timeout(400)  # on a busy machine; some seconds on a free one
def test_float_weights_give_the_golden_logits_and_continuations(model: tuple[str, Path]) -> None:
    runner = Runner(*model, weights="f32")
    golden, found = runner.golden, runner.prefill(range(len(PROMPTS)))
    assert cosines(golden["sample"], found.sample).min() > 0.99999
    assert cosines(centred(golden["sample"]), centred(found.sample)).min() > 0.9999
    assert np.abs(golden["top_logits"] - found.top_logits).max() < MOST_FLOAT_ERROR
    assert np.abs(golden["logsumexp"] - found.logsumexp).max() < MOST_FLOAT_ERROR
    assert np.abs(found.norm / golden["norm"] - 1).max() < 1e-4
    margin = golden["top_logits"][:, 0] - golden["top_logits"][:, 1]
    is_same = golden["top_ids"][:, 0] == found.top_id
    assert is_same[margin > 2 * MOST_FLOAT_ERROR].all()

    last_rows = np.cumsum(np.bincount(golden["positions"][:, 0])) - 1
    continuations = runner.continuations(found.top_id[last_rows].tolist())
    runner.executor.close()
    num_same = (continuations == golden["continuations"]).all(axis=1).sum()
    assert num_same >= 18, f"{num_same} of {len(PROMPTS)} continuations are the golden ones"


@pytest.mark.timeout(400)
def test_int8_weights_stay_near_the_golden_logits(model: tuple[str, Path]) -> None:
    """Bounds are what was measured, rounded down; int8 gives the same bits on every machine.

    They hold for logits without their mean. Most of the error of int8 is one shift of all logits
    of a position (up to 0.7), which changes no probability.
    """
    least_cosine, least_agreement = INT8_BOUNDS[model[0]]
    runner = Runner(*model, weights="int8")
    found = runner.prefill(range(len(PROMPTS) - 1))
    runner.executor.close()
    golden = {key: values[: len(found.top_id)] for key, values in runner.golden.items()}
    assert cosines(centred(golden["sample"]), centred(found.sample)).min() > least_cosine
    assert (golden["top_ids"][:, 0] == found.top_id).mean() > least_agreement
