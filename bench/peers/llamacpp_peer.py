"""llama.cpp through the C interface of llama-cpp-python: sequences batched by hand.

The package's own class runs one sequence at a time, so this file keeps the sequences: which tokens
each has in the cache, what is left to compute, one row a sequence in each decode step. Where all
prompts begin alike, that part is computed once and its cells are shared (`llama_memory_seq_cp`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from bench.peers.llamacpp_grammar import GrammarChoice, grammar_text
from bench.peers.protocol import Form, Setup, serve
from numpy.typing import NDArray

_BATCH_TOKENS = 2048  # of one llama_decode, the library's default
_MAX_SEQUENCES = 256  # of one context, the library's limit

_Pending = tuple[int, int, list[int]]  # sequence, first position, tokens


def common_length(first: list[int], second: list[int]) -> int:
    """How many leading tokens two lists share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second)))  # noqa: B905


class LlamaCppPeer:
    """One model and one context with the library's defaults, but for sizes."""

    def start(self, setup: Setup) -> dict[str, Any]:
        import llama_cpp

        self._api = api = llama_cpp
        self._setup = setup
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(
            setup.model.encode(), api.llama_model_default_params()
        )
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {setup.model}")
        self._vocab = api.llama_model_get_vocab(self._model)
        self._vocab_size = api.llama_vocab_n_tokens(self._vocab)
        options = api.llama_context_default_params()
        options.n_seq_max = min(setup.max_rows, _MAX_SEQUENCES)
        options.kv_unified = is_unified = setup.option("kv_unified", setup.shares_prefix)
        # The library's own choice (-1) decodes at half the speed and less on a CPU.
        options.flash_attn_type = setup.option("flash_attn", 0)
        cells = setup.kv_tokens if is_unified else setup.max_rows * setup.max_context
        options.n_ctx = -(-cells // 256) * 256 + 256 * options.n_seq_max
        options.n_batch = _BATCH_TOKENS
        options.n_threads = options.n_threads_batch = setup.num_threads
        if hasattr(options, "n_outputs_max"):
            options.n_outputs_max = _BATCH_TOKENS
        self._context = api.llama_init_from_model(self._model, options)
        if not self._context:
            raise RuntimeError("llama.cpp cannot make a context of these sizes")
        self._memory = api.llama_get_memory(self._context)
        self._batch = api.llama_batch_init(_BATCH_TOKENS, 0, 1)
        self._cached: list[list[int]] = [[] for _ in range(setup.max_rows)]
        system = api.llama_print_system_info().decode()
        return {
            "version": api.__version__,
            "weights": "as stored",
            "has_amx": "AMX_INT8 = 1" in system,
            "system": system,
        }

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> list[list[int]]:
        texts = [grammar_text(form) for form in forms or []]
        choices: list[GrammarChoice] = []
        try:
            # Each is there to be closed as soon as it is made.
            choices.extend(GrammarChoice(self._api, self._vocab, text) for text in texts)
            return self._continue(self._begin(prompts), num_tokens, choices)
        finally:
            for choice in choices:
                choice.close()

    def _begin(self, prompts: list[list[int]]) -> list[_Pending]:
        """Keeps what the memory has of the prompts; what is left to compute, by sequence."""
        if not self._setup.prefix_cache:
            self._clear()
        # Cells of rows that this call does not have would slow it down.
        for row in range(len(prompts), len(self._cached)):
            if self._cached[row]:
                self._cut(row, 0)
        if self._setup.shares_prefix:
            self._share_prefix(prompts)
        pending = []
        for row, prompt in enumerate(prompts):
            keep = min(common_length(prompt, self._cached[row]), len(prompt) - 1)
            keep = self._cut(row, keep)
            pending.append((row, keep, prompt[keep:]))
            self._cached[row] = list(prompt)
        return pending

    def _continue(
        self, pending: list[_Pending], num_tokens: int, choices: list[GrammarChoice]
    ) -> list[list[int]]:
        """Decodes all sequences that have not ended, a token each at a time."""
        outputs: list[list[int]] = [[] for _ in pending]
        while pending:
            tokens = self._prefill(pending, choices)
            rows = [row for row, _, _ in pending]
            pending = []
            for row, token in zip(rows, tokens, strict=True):
                outputs[row].append(token)
                if len(outputs[row]) == num_tokens:
                    continue
                if choices:
                    if self._api.llama_vocab_is_eog(self._vocab, token):
                        continue
                    choices[row].accept(token)
                pending.append((row, len(self._cached[row]), [token]))
                self._cached[row].append(token)
        return outputs

    def logits(self, token_ids: list[int]) -> NDArray[np.float32]:
        self._clear()
        parts = []
        for first in range(0, len(token_ids), _BATCH_TOKENS):
            part = token_ids[first : first + _BATCH_TOKENS]
            entries = [(0, first + index, token, True) for index, token in enumerate(part)]
            parts.append(self._decode(entries).copy())
        return np.concatenate(parts)

    def _share_prefix(self, prompts: list[list[int]]) -> None:
        """Computes what all prompts begin with in the first sequence; the others share it."""
        common = min(common_length(prompts[0], prompt) for prompt in prompts)
        common = min(common, len(prompts[0]) - 1)
        if common_length(prompts[0], self._cached[0]) < common:
            # The other sequences hold the cells of the prefix before: it must leave all of them,
            # or the pool stays as large as both.
            self._clear()
        keep = self._cut(0, min(len(self._cached[0]), common))
        if keep < common:
            self._prefill([(0, keep, prompts[0][keep:common])])
            self._cached[0] = prompts[0][:common]
        for row in range(1, len(prompts)):
            if common_length(self._cached[row], prompts[row]) >= common:
                continue
            self._cut(row, 0)
            self._api.llama_memory_seq_cp(self._memory, 0, row, 0, common)
            self._cached[row] = prompts[row][:common]

    def _clear(self) -> None:
        """Empties the memory."""
        self._api.llama_memory_clear(self._memory, False)
        self._cached = [[] for _ in self._cached]

    def _cut(self, row: int, keep: int) -> int:
        """Removes a sequence's cells from position `keep` on; returns how many are left."""
        api = self._api
        # A window may have dropped the oldest cells: then nothing can be reused.
        if api.llama_memory_seq_pos_min(self._memory, row) > 0:
            keep = 0
        if not api.llama_memory_seq_rm(self._memory, row, keep, -1):
            api.llama_memory_seq_rm(self._memory, row, -1, -1)
            keep = 0
        self._cached[row] = self._cached[row][:keep]
        return keep

    def _prefill(self, pending: list[_Pending], choices: Sequence[GrammarChoice] = ()) -> list[int]:
        """Computes these tokens; the best next token of each sequence, by its choice if any."""
        best: list[int] = []
        entries: list[tuple[int, int, int, bool]] = []
        for row, first, tokens in pending:
            for index, token in enumerate(tokens):
                entries.append((row, first + index, token, index == len(tokens) - 1))
        for start in range(0, len(entries), _BATCH_TOKENS):
            logits = self._decode(entries[start : start + _BATCH_TOKENS])
            if choices:
                rows = [pending[len(best) + index][0] for index in range(len(logits))]
                pairs = zip(rows, logits, strict=True)
                best += [choices[row].choose(values) for row, values in pairs]
            elif len(logits):
                best += logits.argmax(axis=1).tolist()
        return best

    def _decode(self, entries: list[tuple[int, int, int, bool]]) -> NDArray[np.float32]:
        """One call of the library; a view of the logits that were asked for."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for index, (row, position, token, wants_logits) in enumerate(entries):
            batch.token[index] = token
            batch.pos[index] = position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = row
            batch.logits[index] = wants_logits
        status = self._api.llama_decode(self._context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode ended with {status}")
        num_outputs = sum(entry[3] for entry in entries)
        if num_outputs == 0:
            return np.zeros((0, self._vocab_size), dtype=np.float32)
        pointer = self._api.llama_get_logits(self._context)
        pointer = ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, (num_outputs, self._vocab_size))


if __name__ == "__main__":
    serve(LlamaCppPeer())
