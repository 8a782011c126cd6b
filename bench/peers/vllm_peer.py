"""vLLM on a CPU, from a Hugging Face folder in bfloat16."""

from __future__ import annotations

import os
from typing import Any

from bench.peers.protocol import Form, RefusedError, Setup, notation, serve


class VllmPeer:
    """One LLM object with vLLM's defaults, but for sizes and threads; compiled, not eager.

    The option "backend" names what holds its forms; JSON is compact then, where it can be told so.
    """

    def start(self, setup: Setup) -> dict[str, Any]:
        # OpenMP reads it when torch is loaded, and torch refuses to change the number later. What
        # vLLM has of its own (VLLM_CPU_OMP_THREADS_BIND) is for workers in other processes only.
        os.environ["OMP_NUM_THREADS"] = str(setup.num_threads)
        import torch
        import vllm

        self._library = vllm
        self._llm = vllm.LLM(
            model=setup.model,
            dtype="bfloat16",
            max_model_len=setup.max_context,
            max_num_seqs=setup.max_rows,
            enable_prefix_caching=setup.prefix_cache,
            seed=0,
            **self._held_by(setup.option("backend", None)),
        )
        return {
            "version": vllm.__version__,
            "weights": "bf16",
            "threads": torch.get_num_threads(),
        }

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> list[list[int]]:
        of_rows = forms if forms is not None else [None] * len(prompts)
        sampling = [self._sampling(num_tokens, form) for form in of_rows]
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        answers = self._llm.generate(inputs, sampling, use_tqdm=False)
        return [list(answer.outputs[0].token_ids) for answer in answers]

    @staticmethod
    def _held_by(backend: str | None) -> dict[str, Any]:
        if backend is None:
            return {}
        is_compact = backend in ("xgrammar", "guidance")
        settings = {"backend": backend, "disable_any_whitespace": is_compact}
        return {"structured_outputs_config": settings}

    def _sampling(self, num_tokens: int, form: Form | None) -> Any:
        make = self._library.SamplingParams
        if form is None:
            return make(temperature=0.0, max_tokens=num_tokens, ignore_eos=True, detokenize=False)
        from vllm.sampling_params import StructuredOutputsParams

        name, value = notation(form, "regex", "json_schema")
        held = StructuredOutputsParams(**{"json" if name == "json_schema" else name: value})
        return make(temperature=0.0, max_tokens=num_tokens, structured_outputs=held)

    def logits(self, token_ids: list[int]) -> Any:
        raise RefusedError("vLLM gives no whole rows of logits")


if __name__ == "__main__":
    serve(VllmPeer())
