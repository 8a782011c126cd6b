"""Greedy choice under a grammar of llama.cpp, in the order of its own sampler.

The best token is tried alone first; the whole vocabulary is masked only where the grammar refuses
it, which is what llama.cpp's server does too. Knows nothing of sequences or batches.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any

import numpy as np
from bench.peers.protocol import Form, RefusedError, notation
from numpy.typing import NDArray

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def grammar_text(form: Form) -> str:
    """A form in llama.cpp's notation; a schema is converted by the package itself."""
    name, value = notation(form, "gbnf", "json_schema")
    if name == "gbnf":
        return str(value)
    from llama_cpp.llama_grammar import json_schema_to_gbnf

    return str(json_schema_to_gbnf(json.dumps(value)))


class GrammarChoice:
    """The state of one output. `close` frees it."""

    def __init__(self, api: Any, vocab: Any, text: str) -> None:
        """Raises RefusedError where the library cannot read the grammar."""
        self._api = api
        self._sampler = api.llama_sampler_init_grammar(vocab, text.encode(), b"root")
        if not self._sampler:
            raise RefusedError("llama.cpp cannot read this grammar (its log says why)")

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The best token that the grammar allows."""
        best = int(logits.argmax())
        tried = np.array([(best, logits[best], 0.0)], dtype=_CANDIDATE)
        self._apply(tried)
        if np.isneginf(tried["logit"][0]):
            masked = np.empty(len(logits), dtype=_CANDIDATE)
            masked["id"] = np.arange(len(logits))
            masked["logit"], masked["p"] = logits, 0.0
            self._apply(masked)
            best = int(masked["logit"].argmax())
        return best

    def accept(self, token: int) -> None:
        """Moves on by a token that was chosen; not by one that ends the text."""
        self._api.llama_sampler_accept(self._sampler, token)

    def close(self) -> None:
        """Frees what the library holds."""
        self._api.llama_sampler_free(self._sampler)

    def _apply(self, candidates: NDArray[Any]) -> None:
        """Sets the logits of tokens that may not come to minus infinity, in place."""
        api = self._api
        array = api.llama_token_data_array(
            data=candidates.ctypes.data_as(ctypes.POINTER(api.llama_token_data)),
            size=len(candidates),
            selected=-1,
            sorted=False,
        )
        api.llama_sampler_apply(self._sampler, ctypes.byref(array))
