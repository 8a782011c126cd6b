"""The language of an adapter: JSON lines over standard input and output, one answer a request.

It runs inside every peer's virtual environment, so it needs the standard library alone and knows
nothing of Espalier. `serve` is the adapter's side; bench/peers/process.py is the other one.

    {"op": "start", "setup": {...}}                        -> {"facts": {...}, "seconds": 1.2}
    {"op": "generate", "prompts": [[1, 2]], "num_tokens": 5} -> {"outputs": [[...]], "seconds": 0.1}
    {..., "num_tokens": 5, "forms": [{"regex": "a+"}, ...]}  -> the same, of any length
    {"op": "logits", "token_ids": [1, 2], "path": "x.npy"}   -> {"seconds": 0.1}
    {"op": "stop"}                                           -> {}
A request that fails is answered by {"error": "...", "is_refused": true or false}.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from typing import Any, Protocol

_PR_SET_PDEATHSIG = 1

# What an output must be: one language in each notation that the bench has for it, by the names
# "regex" (Python's dialect), "json_schema" (a dict) and "gbnf" (a grammar of llama.cpp).
Form = dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """What an adapter is started for.

    Attributes:
        model: a GGUF file or a Hugging Face folder, whichever the peer reads.
        num_threads: threads that compute.
        max_rows: sequences of one call.
        max_context: tokens of one sequence, prompt and output together.
        kv_tokens: tokens of all sequences together, a shared prefix counted once.
        prefix_cache: whether tokens of earlier calls may be reused.
        shares_prefix: all sequences of a call begin with the same long text.
        options: what only one peer knows.
    """

    model: str
    num_threads: int = 2
    max_rows: int = 1
    max_context: int = 1024
    kv_tokens: int = 1024
    prefix_cache: bool = False
    shares_prefix: bool = False
    options: dict[str, Any] | None = None

    def option(self, name: str, default: Any) -> Any:
        """An option of one peer."""
        return (self.options or {}).get(name, default)


class RefusedError(Exception):
    """What this peer cannot do; the message says why."""


def notation(form: Form, *known: str) -> tuple[str, Any]:
    """The first notation that a peer knows, and the form in it; raises RefusedError for none."""
    for name in known:
        if name in form:
            return name, form[name]
    raise RefusedError(f"takes {' or '.join(known)}, and the form is given as {', '.join(form)}")


class Adapter(Protocol):
    """What a peer implements."""

    def start(self, setup: Setup) -> dict[str, Any]:
        """Loads the model; returns facts for the report, at least "version"."""
        ...

    def generate(
        self, prompts: list[list[int]], num_tokens: int, forms: list[Form] | None = None
    ) -> list[list[int]]:
        """Greedy continuations of exactly `num_tokens` tokens, all prompts at once.

        Where forms are given, one a prompt, each output has its form and ends with it, after at
        most `num_tokens` tokens; a token that ends the text may stand last. Raises RefusedError
        for forms that the peer cannot hold.
        """
        ...

    def logits(self, token_ids: list[int]) -> Any:
        """Logits at each position, float32 `[tokens, vocabulary]`, from an empty cache."""
        ...


def serve(adapter: Adapter) -> None:
    """Answers requests until "stop" or the end of the input."""
    _die_with_parent()
    # Libraries print what they like on standard output; the answers go where nobody else writes.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        answer = {} if request["op"] == "stop" else _answer(adapter, request)
        print(json.dumps(answer), file=answers, flush=True)
        if request["op"] == "stop":
            break
    sys.stderr.flush()
    # Some peers hang or crash when their threads are torn down; nothing is left to do.
    os._exit(0)


def _die_with_parent() -> None:
    """A frozen adapter would outlive a bench that was killed; Linux can end it then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _answer(adapter: Adapter, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return _OPERATIONS[request["op"]](adapter, request)
    except RefusedError as error:
        return {"error": str(error), "is_refused": True}
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}", "is_refused": False}


def _start(adapter: Adapter, request: dict[str, Any]) -> dict[str, Any]:
    start = time.perf_counter()
    facts = adapter.start(Setup(**request["setup"]))
    return {"facts": facts, "seconds": time.perf_counter() - start}


def _generate(adapter: Adapter, request: dict[str, Any]) -> dict[str, Any]:
    prompts, num_tokens = request["prompts"], request["num_tokens"]
    forms: list[Form] | None = request.get("forms")
    start = time.perf_counter()
    outputs = adapter.generate(prompts, num_tokens, forms)
    seconds = time.perf_counter() - start
    lengths = {len(output) for output in outputs}
    is_right = lengths == {num_tokens} if forms is None else max(lengths, default=0) <= num_tokens
    if len(outputs) != len(prompts) or not is_right:
        raise RuntimeError(
            f"{len(outputs)} outputs of {sorted(lengths)} tokens came back for {len(prompts)} "
            f"prompts and {num_tokens} tokens"
        )
    return {"outputs": outputs, "seconds": seconds}


def _logits(adapter: Adapter, request: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    start = time.perf_counter()
    logits = adapter.logits(request["token_ids"])
    seconds = time.perf_counter() - start
    np.save(request["path"], np.asarray(logits, dtype=np.float32), allow_pickle=False)
    return {"seconds": seconds}


_OPERATIONS = {"start": _start, "generate": _generate, "logits": _logits}


def setup_request(setup: Setup) -> dict[str, Any]:
    """The request that starts an adapter."""
    return {"op": "start", "setup": asdict(setup)}
