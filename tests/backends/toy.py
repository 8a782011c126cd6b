"""A toy model for the local backend: 24 tokens over `abcd`, logits from a hash of the history."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from tests.engine.fakes import mixed

from espalier.backends.local import LocalBackend
from espalier.backends.scripted import PlainRoles
from espalier.engine.async_engine import AsyncEngine
from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.sampler import Sampler
from espalier.exec.executor import Float32Array, StepBatch
from espalier.exec.plan import Geometry, Plan
from espalier.tokenizer.gguf_vocab import tokenizer_from_gguf
from espalier.tokenizer.tokenizer import Tokenizer

CONTROLS = ["<s>", "</s>", "<|x|>"]
SINGLES = [*"abcd!", "Ġ", "Ċ"]
# The last ones can only be generated: no text is cut into them.
MERGED = [
    "ab",
    "bc",
    "cd",
    "abc",
    "Ġa",
    "Ġab",
    "Ġabc",
    "Ġb",
    "ĠĠ",
    "ĠĠĠĠ",
    "ĠĠĠ",
    "bĠ",
    "cĠa",
    "!a",
]
MERGES = ["Ġ a", "Ġ b", "Ġa b", "Ġab c", "a b", "b c", "c d", "ab c", "Ġ Ġ", "ĠĠ ĠĠ", "ĠĠ Ġ"]
TOKENS = [*CONTROLS, *SINGLES, *MERGED]


@cache
def toy_tokenizer(add_bos: bool = False) -> Tokenizer:
    return tokenizer_from_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": TOKENS,
            "tokenizer.ggml.token_type": [3] * len(CONTROLS) + [1] * (len(TOKENS) - len(CONTROLS)),
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.ggml.add_bos_token": add_bos,
        }
    )


def toy_logits(history: Sequence[int]) -> Float32Array:
    """The model: logits, [len(TOKENS)], of what follows a history."""
    state = 0
    for token in history:
        state = mixed(state ^ (token + 1))
    values = [mixed(state ^ (token * 0x10001)) % 4096 for token in range(len(TOKENS))]
    logits: Float32Array = np.array(values, dtype=np.float32) / np.float32(1024.0)
    return logits


@cache
def _log_softmax(history: tuple[int, ...]) -> list[float]:
    logits = toy_logits(history).astype(np.float64)
    values: list[float] = (logits - np.logaddexp.reduce(logits)).tolist()
    return values


def toy_logprob(history: Sequence[int], token: int) -> float:
    """log P(token | history), in float64."""
    return _log_softmax(tuple(history))[token]


def toy_text_probability(history: Sequence[int], data: bytes) -> float:
    """P(the text after a history begins with `data`), by trying every token."""
    if not data:
        return 1.0
    tokenizer = toy_tokenizer()
    total = 0.0
    for token in range(len(CONTROLS), len(TOKENS)):
        piece = tokenizer.token_bytes(token)
        if piece.startswith(data):
            total += math.exp(toy_logprob(history, token))
        elif data.startswith(piece):
            rest = toy_text_probability([*history, token], data[len(piece) :])
            total += math.exp(toy_logprob(history, token)) * rest
    return total


class ToyExecutor:
    """Reads the history back through the slots, as attention would."""

    isa = "auto"
    thread_pool: None = None

    def __init__(self, num_slots: int) -> None:
        self.plan = Plan("toy", Geometry(1, 1, 1, 1, 1, len(TOKENS), 1 << 16), (), (), (), ())
        self.num_slots = num_slots
        self.num_rows = 0
        self._slots = np.full(num_slots, -1, dtype=np.int32)

    def run(self, batch: StepBatch) -> Float32Array:
        self.num_rows += batch.num_rows
        rows: list[Float32Array] = []
        wanted = set(batch.logit_rows.tolist())
        for index in range(len(batch.row_starts) - 1):
            slots = batch.slot_ids[batch.slot_starts[index] : batch.slot_starts[index + 1]]
            for row in range(int(batch.row_starts[index]), int(batch.row_starts[index + 1])):
                position = int(batch.positions[row])
                self._slots[slots[position]] = batch.token_ids[row]
                if row in wanted:
                    rows.append(toy_logits(self._slots[slots[: position + 1]].tolist()))
        return np.array(rows, dtype=np.float32).reshape(len(rows), len(TOKENS))

    def memory_bytes(self) -> dict[str, int]:
        return {"weights": 0, "kv_pool": 0, "scratch": 0}

    def close(self) -> None:
        pass


def toy_engine(num_slots: int = 4096, **options: object) -> AsyncEngine:
    values: dict[str, object] = {"num_slots": num_slots, "context_length": 1024, **options}
    settings = EngineOptions(**values)  # type: ignore[arg-type]
    core = EngineCore(ToyExecutor(num_slots), toy_tokenizer(), Sampler(len(TOKENS)), settings)
    return AsyncEngine(core)


def toy_backend(
    *, add_bos: bool = False, random_seed: int = 0, num_slots: int = 4096, **options: object
) -> LocalBackend:
    return LocalBackend(
        toy_engine(num_slots, **options),
        toy_tokenizer(add_bos),
        template=PlainRoles(),
        model_name="toy",
        random_seed=random_seed,
    )


def rows_of(backend: LocalBackend) -> int:
    """Token rows that the backend's executor has computed."""
    executor = backend.engine._core.executor
    assert isinstance(executor, ToyExecutor)
    return executor.num_rows
