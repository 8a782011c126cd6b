"""The quality bench on logits that are made up."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from bench.engine.logit_sources import LogitSource
from bench.engine.quality import formats, score, windows
from numpy.typing import NDArray

from espalier.loaders.model import LoadedModel

VOCAB = 11


class Noisy:
    """Logits that are a function of the tokens so far, with noise of a given size."""

    def __init__(self, noise: float) -> None:
        self._noise = noise
        self.is_closed = False

    def window(self, token_ids: list[int], rows: int) -> Iterator[NDArray[np.float32]]:
        source = np.random.default_rng(sum(token_ids))
        logits = source.normal(size=(len(token_ids), VOCAB)) * 3
        logits += source.normal(size=logits.shape) * self._noise
        for first in range(0, len(token_ids), rows):
            yield logits[first : first + rows].astype(np.float32)

    def close(self) -> None:
        self.is_closed = True


def test_score_orders_formats_by_their_noise_whatever_the_step() -> None:
    parts = [
        [int(token) for token in np.random.default_rng(seed).integers(0, VOCAB, 20)]
        for seed in (1, 2)
    ]
    sources: dict[str, LogitSource] = {"same": Noisy(0), "near": Noisy(0.1), "far": Noisy(1.0)}
    found = score(parts, Noisy(0), sources, 7)
    assert found["same"].mean_kl == 0
    assert found["same"].best_equal == 1
    assert 0 < found["near"].mean_kl < found["far"].mean_kl
    assert found["near"].num_positions == 40
    again = score(parts, Noisy(0), sources, 20)
    for name, quality in found.items():
        assert again[name].mean_kl == pytest.approx(quality.mean_kl)
        assert again[name].perplexity == pytest.approx(quality.perplexity)


def model_of(ids: list[int], add_bos: bool) -> LoadedModel:
    def encode(text: str, *, add_bos: bool) -> list[int]:
        assert not add_bos
        return ids[: len(text)]

    tokenizer: Any = SimpleNamespace(encode=encode, add_bos=add_bos, bos_id=99)
    return cast(LoadedModel, SimpleNamespace(tokenizer=tokenizer))


def test_windows_have_one_length_and_a_bos_where_the_model_wants_one() -> None:
    ids = list(range(30))
    assert windows(model_of(ids, False), "x" * 30, 8, 4) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert windows(model_of(ids, True), "x" * 30, 8, 4) == [[99, 0, 1, 2], [99, 3, 4, 5]]
    with pytest.raises(ValueError, match="has 5 tokens; 8 are needed"):
        windows(model_of(ids, False), "x" * 5, 8, 4)


def test_formats_are_the_default_and_each_alone() -> None:
    assert formats(["int8", "f32"], ["bf16"]) == [
        ("auto", "auto"),
        ("int8", "auto"),
        ("f32", "auto"),
        ("auto", "bf16"),
    ]
