"""Espalier itself, through its public Engine."""

from __future__ import annotations

from typing import Any

from bench.peers.protocol import Form, RefusedError, Setup, notation, serve


class EspalierPeer:
    """One Engine with its defaults, but for sizes."""

    def start(self, setup: Setup) -> dict[str, Any]:
        import espalier

        self._engine = espalier.Engine(
            setup.model,
            num_threads=setup.num_threads,
            max_total_tokens=setup.kv_tokens + 64 * setup.max_rows,
            max_running_requests=setup.max_rows,
            context_length=setup.max_context,
            weights=setup.option("weights", "auto"),
            kv_dtype=setup.option("kv_dtype", "auto"),
        )
        self._keeps_cache = setup.prefix_cache
        info = self._engine.get_server_info()
        return {"version": str(info.get("version", espalier.__version__))}

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> list[list[int]]:
        if not self._keeps_cache:
            self._engine.flush_cache()
        greedy = {"temperature": 0.0, "max_new_tokens": num_tokens}
        sampling: dict[str, Any] | list[dict[str, Any]] = {**greedy, "ignore_eos": True}
        if forms is not None:
            sampling = [greedy | dict([notation(form, "regex", "json_schema")]) for form in forms]
        answers = self._engine.generate(input_ids=prompts, sampling_params=sampling)
        return [answer["output_ids"] for answer in answers]

    def logits(self, token_ids: list[int]) -> Any:
        raise RefusedError("quality.py asks Espalier's executor itself for logits")


if __name__ == "__main__":
    serve(EspalierPeer())
