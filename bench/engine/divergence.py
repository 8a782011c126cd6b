"""How far one set of next-token distributions is from another, position by position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float64Array = NDArray[np.float64]


def log_softmax(logits: NDArray[np.floating[Any]]) -> Float64Array:
    """Log-probabilities of each row, in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return shifted


class ReferenceRows:
    """The distributions that others are measured against, for some rows.

    `next_ids` are the tokens that really follow; -1 where none does.
    """

    def __init__(self, logits: NDArray[np.floating[Any]], next_ids: NDArray[np.int64]) -> None:
        self.next_ids = next_ids
        self._log_p = log_softmax(logits)
        self._p = np.exp(self._log_p)
        self._best = logits.argmax(axis=1)

    def scores(self, logits: NDArray[np.floating[Any]]) -> RowScores:
        """Scores of other logits at the same rows."""
        log_q = log_softmax(logits)
        rows = np.flatnonzero(self.next_ids >= 0)
        nll = np.full(len(self.next_ids), np.nan)
        nll[rows] = -log_q[rows, self.next_ids[rows]]
        with np.errstate(invalid="ignore"):  # 0 x (-inf - -inf) of tokens that neither gives
            terms = self._p * (self._log_p - log_q)
        return RowScores(
            kl=np.where(self._p > 0, terms, 0.0).sum(axis=1),
            nll=nll,
            is_best_equal=logits.argmax(axis=1) == self._best,
        )


@dataclass(frozen=True)
class RowScores:
    """Scores of each row: arrays of one length.

    Attributes:
        kl: KL divergence from the reference, in nats; never below 0 but for rounding.
        nll: negative log-likelihood of the token that follows; NaN where none does.
        is_best_equal: whether the most probable token is the reference's.
    """

    kl: Float64Array
    nll: Float64Array
    is_best_equal: NDArray[np.bool_]


@dataclass(frozen=True)
class Quality:
    """What is reported of one format."""

    mean_kl: float
    kl_99: float
    best_equal: float
    perplexity: float
    num_positions: int


def summarise(parts: list[RowScores]) -> Quality:
    """Scores of many rows as four numbers. There must be at least one row."""
    kl = np.concatenate([part.kl for part in parts])
    nll = np.concatenate([part.nll for part in parts])
    equal = np.concatenate([part.is_best_equal for part in parts])
    return Quality(
        mean_kl=float(kl.mean()),
        kl_99=float(np.quantile(kl, 0.99)),
        best_equal=float(equal.mean()),
        perplexity=float(np.exp(np.nanmean(nll))),
        num_positions=len(kl),
    )
