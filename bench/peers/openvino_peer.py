"""OpenVINO GenAI with continuous batching, from a GGUF file, in the formats that it chooses."""

from __future__ import annotations

import json
from typing import Any

from bench.peers.protocol import Form, RefusedError, Setup, notation, serve


class OpenVinoPeer:
    """One pipeline that schedules all sequences of a call together."""

    def start(self, setup: Setup) -> dict[str, Any]:
        import openvino
        import openvino_genai

        self._library, self._tensor = openvino_genai, openvino.Tensor
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = 2  # GiB
        scheduler.max_num_seqs = setup.max_rows
        scheduler.enable_prefix_caching = setup.prefix_cache
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            setup.model, scheduler, "CPU", {"INFERENCE_NUM_THREADS": setup.num_threads}
        )
        return {"version": openvino_genai.__version__.split("-")[0], "weights": "as stored"}

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> list[list[int]]:
        import numpy as np

        of_rows = forms if forms is not None else [None] * len(prompts)
        configs = [self._config(num_tokens, form) for form in of_rows]
        inputs = [self._tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        answers = self._pipeline.generate(inputs, configs)
        return [list(map(int, answer.m_generation_ids[0])) for answer in answers]

    def _config(self, num_tokens: int, form: Form | None) -> Any:
        config = self._library.GenerationConfig()
        config.max_new_tokens = num_tokens
        config.do_sample = False
        config.ignore_eos = form is None
        if form is not None:
            name, value = notation(form, "regex", "json_schema")
            text = value if isinstance(value, str) else json.dumps(value)
            held = self._library.StructuredOutputConfig(**{name: text})
            config.structured_output_config = held
        return config

    def logits(self, token_ids: list[int]) -> Any:
        raise RefusedError("OpenVINO GenAI gives no logits")


if __name__ == "__main__":
    serve(OpenVinoPeer())
