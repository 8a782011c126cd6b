"""Writes golden logits and greedy continuations of real models, computed by transformers.

    python tests/golden/make_golden.py smollm2 SmolLM2-135M-Instruct.Q4_1.gguf
    python tests/golden/make_golden.py gemma3 gemma-3-270m-q4_k_m.gguf

needs torch, transformers and gguf (made with torch 2.13.0, transformers 5.24.0 and gguf 0.19.0;
about a minute and 3 GB of memory for each model). transformers unpacks the file to float32 and runs
its own code of the architecture, so that nothing here is shared with Espalier.

Input: data/prompts.json, texts and their token ids. The ids are what counts: both sides start from
them, so that a tokenizer has no part in the comparison. The last prompt is longer than the sliding
window of Gemma 3 (512).

Output: data/golden_<model>.npz, small enough to commit. All logits of a position would be 49,152 or
262,144 numbers, so each position keeps
- `sample`: logits of 768 vocabulary ids, drawn once with a seed and sorted (`sample_ids`), float16;
- `top_ids`, `top_logits`: the 8 largest logits, float32;
- `norm`, `logsumexp`: over the whole vocabulary, float32.
A cosine over the sample is that over the vocabulary within the error of a sample; the norm and the
logsumexp tell a difference outside of it. `positions` says which positions of which prompt the rows
are (all of them; of the last prompt the last 48). `continuations` are 32 greedy tokens after each
prompt, without a stop at end tokens.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent / "data"
SAMPLE_SIZE = 768
SAMPLE_SEED = 20_240_917
NUM_TOP = 8
LONG_PROMPT_POSITIONS = 48
CONTINUATION_LENGTH = 32


def load(path: Path) -> Any:
    """The model in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent),
        gguf_file=path.name,
        dtype=torch.float32,
        attn_implementation="eager",
    )
    return model.eval()


def continuation(model: Any, token_ids: list[int]) -> list[int]:
    """Greedy tokens, each from a pass over the cache."""
    import torch

    tokens: list[int] = []
    cache, step = None, torch.tensor([token_ids])
    for _ in range(CONTINUATION_LENGTH):
        output = model(step, past_key_values=cache, use_cache=True)
        cache = output.past_key_values
        tokens.append(int(output.logits[0, -1].argmax()))
        step = torch.tensor([[tokens[-1]]])
    return tokens


def main() -> None:
    """Runs the prompts and writes the file of one model."""
    import torch

    name, path = sys.argv[1], Path(sys.argv[2])
    prompts = [entry[name] for entry in json.loads((DATA / "prompts.json").read_text())]
    model = load(path)
    vocab_size = model.config.vocab_size
    chosen = np.random.RandomState(SAMPLE_SEED).permutation(vocab_size)[:SAMPLE_SIZE]
    sample_ids = np.sort(chosen).astype(np.int32)
    rows: dict[str, list[Any]] = {
        key: [] for key in ("positions", "sample", "top_ids", "top_logits", "norm", "logsumexp")
    }
    continuations = []
    with torch.no_grad():
        for index, prompt in enumerate(prompts):
            logits = model(torch.tensor([prompt])).logits[0]
            first = max(0, len(prompt) - LONG_PROMPT_POSITIONS) if len(prompt) > 100 else 0
            for position in range(first, len(prompt)):
                row = logits[position]
                top = row.topk(NUM_TOP)
                rows["positions"].append((index, position))
                rows["sample"].append(row.numpy()[sample_ids].astype(np.float16))
                rows["top_ids"].append(top.indices.numpy().astype(np.int32))
                rows["top_logits"].append(top.values.numpy())
                rows["norm"].append(float(row.norm()))
                rows["logsumexp"].append(float(row.logsumexp(0)))
            continuations.append(continuation(model, prompt))
            print(index, len(prompt), continuations[-1][:8])
    arrays: dict[str, Any] = {key: np.array(values) for key, values in rows.items()}
    arrays["positions"] = arrays["positions"].astype(np.int32)
    for key in ("norm", "logsumexp"):
        arrays[key] = arrays[key].astype(np.float32)
    np.savez_compressed(
        DATA / f"golden_{name}.npz",
        sample_ids=sample_ids,
        continuations=np.array(continuations, dtype=np.int32),
        **arrays,
    )


if __name__ == "__main__":
    main()
