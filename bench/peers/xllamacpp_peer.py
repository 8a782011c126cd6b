"""llama.cpp's own server, in the process, through xllamacpp: its slots and its scheduling.

Requests go to its native endpoint on the loopback interface: the package's own method answers in
OpenAI's form, which has no token ids.
"""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.peers.protocol import Form, RefusedError, Setup, notation, serve

_CELL_STEP = 256  # the library rounds the cells of a slot to it


def context_cells(setup: Setup) -> int:
    """Cells of all slots together, so many that each has room for the longest sequence."""
    return setup.max_rows * -(-setup.max_context // _CELL_STEP) * _CELL_STEP


class XllamaCppPeer:
    """One Server with the package's prebuilt library.

    Prompts of a call are one request, but with forms, which are of a request, one request each.
    """

    def start(self, setup: Setup) -> dict[str, Any]:
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = setup.model
        params.n_parallel = setup.max_rows
        # A slot computes and keeps its whole prompt, also where another slot has the same prefix.
        params.kv_unified = False
        params.n_ctx = context_cells(setup)
        params.cpuparams.n_threads = setup.num_threads
        params.cpuparams_batch.n_threads = setup.num_threads
        params.cache_prompt = self._keeps_cache = setup.prefix_cache
        params.n_gpu_layers = 0
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.fit_params = False
        params.port = 0  # any that is free
        self._server = xllamacpp.Server(params)
        # No proxy of the environment may come between.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        version = getattr(xllamacpp, "__version__", None) or str(xllamacpp.BUILD_INFO)
        return {"version": version, "system": str(xllamacpp.get_system_info())}

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> list[list[int]]:
        if forms is None:
            settings = {"ignore_eos": True}
            return self._complete(prompts if len(prompts) > 1 else prompts[0], num_tokens, settings)
        held = [self._held(form) for form in forms]
        with ThreadPoolExecutor(len(prompts)) as pool:
            calls = [
                pool.submit(self._complete, prompt, num_tokens, settings)
                for prompt, settings in zip(prompts, held, strict=True)
            ]
            return [call.result()[0] for call in calls]

    @staticmethod
    def _held(form: Form) -> dict[str, Any]:
        name, value = notation(form, "gbnf", "json_schema")
        return {"grammar" if name == "gbnf" else name: value}

    def _complete(
        self, prompt: list[Any], num_tokens: int, settings: dict[str, Any]
    ) -> list[list[int]]:
        """One request, for one prompt or several."""
        request = {
            "prompt": prompt,
            "n_predict": num_tokens,
            "temperature": 0.0,
            "samplers": ["temperature"],
            "cache_prompt": self._keeps_cache,
            "return_tokens": True,
            "stream": False,
            **settings,
        }
        sent = urllib.request.Request(
            f"{self._server.listening_address}/completion",
            data=json.dumps(request).encode(),
            headers={"Content-Type": "application/json"},
        )
        with self._opener.open(sent) as response:
            answer = json.load(response)
        answers = answer if isinstance(answer, list) else [answer]
        ordered = sorted(answers, key=lambda entry: entry.get("index", 0))
        return [entry["tokens"] for entry in ordered]

    def logits(self, token_ids: list[int]) -> Any:
        raise RefusedError("the server gives no logits")


if __name__ == "__main__":
    serve(XllamaCppPeer())
