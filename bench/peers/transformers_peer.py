"""The transformers library on torch, from a Hugging Face folder in bfloat16."""

from __future__ import annotations

from typing import Any

from bench.peers.protocol import Form, RefusedError, Setup, serve


class TransformersPeer:
    """`generate` of one model; prompts of one call have one length, so that none is padded."""

    def start(self, setup: Setup) -> dict[str, Any]:
        if setup.shares_prefix:
            raise RefusedError("transformers shares no prefix between the sequences of a call")
        import torch
        import transformers

        torch.set_num_threads(setup.num_threads)
        self._torch = torch
        dtype = getattr(torch, setup.option("dtype", "bfloat16"))
        model = transformers.AutoModelForCausalLM.from_pretrained(setup.model, dtype=dtype)
        self._model = model.eval()
        self._model.generation_config.eos_token_id = None
        return {"version": transformers.__version__, "weights": "bf16", "caches_prefix": False}

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> list[list[int]]:
        if forms is not None:
            raise RefusedError("transformers holds no forms by itself")
        ids = self._torch.tensor(prompts)
        with self._torch.inference_mode():
            whole = self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                max_new_tokens=num_tokens,
                min_new_tokens=num_tokens,
                do_sample=False,
                pad_token_id=0,
            )
        outputs: list[list[int]] = whole[:, ids.shape[1] :].tolist()
        return outputs

    def logits(self, token_ids: list[int]) -> Any:
        with self._torch.inference_mode():
            return self._model(self._torch.tensor([token_ids])).logits[0].float().numpy()


if __name__ == "__main__":
    serve(TransformersPeer())
