"""An adapter without a model: it counts upwards, and fails, refuses or dies when asked to."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from bench.peers.protocol import Form, RefusedError, Setup, notation, serve


class FakePeer:
    """`setup.model` says how it behaves."""

    def start(self, setup: Setup) -> dict[str, Any]:
        self._mood = setup.model
        if self._mood == "refuses":
            raise RefusedError("no such model here")
        print("a library greets on standard output")
        return {"version": "1", "threads": setup.num_threads}

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> list[list[int]]:
        if self._mood == "fails":
            raise ValueError("out of tokens")
        if self._mood == "dies":
            print("last words", flush=True)
            os._exit(7)
        if forms is not None:
            lengths = [int(notation(form, "regex")[1]) for form in forms]
            return [[1] * length for length in lengths]
        short = 1 if self._mood == "short" else 0
        return [
            [prompt[-1] + step for step in range(1, num_tokens + 1 - short)] for prompt in prompts
        ]

    def logits(self, token_ids: list[int]) -> Any:
        return np.array([[token, -token] for token in token_ids], dtype=np.float32)


if __name__ == "__main__":
    serve(FakePeer())
