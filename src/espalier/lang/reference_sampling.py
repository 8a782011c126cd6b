"""Sampling values in the reference's form, for backends that a user wrote for it.

Knows the names that services use for them and nothing that calls a service.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Names of the fields below, and what each kind of service calls them.
_SRT = (
    "max_new_tokens",
    "min_new_tokens",
    "n",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "ignore_eos",
    "regex",
    "json_schema",
)
_OPENAI = {
    "max_new_tokens": "max_tokens",
    "n": "n",
    "stop": "stop",
    "temperature": "temperature",
    "top_p": "top_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
}
_ANTHROPIC = {
    "max_new_tokens": "max_tokens",
    "stop": "stop_sequences",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
}
_LITELLM = {name: wire for name, wire in _OPENAI.items() if name != "n"}
_VERTEX = {
    "max_new_tokens": "max_output_tokens",
    "stop": "stop_sequences",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
}


@dataclass
class SglSamplingParams:
    """What a generation asks of a backend, by the reference's names and defaults.

    `stop`, `stop_token_ids` and `stop_regex` are sequences. `dtype` is "int", "float", "bool",
    "str" or None; `regex` and `json_schema` are texts or None.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    n: int = 1
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] | None = ()
    stop_regex: str | Sequence[str] | None = ()
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    ignore_eos: bool = False
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    return_text_in_logprobs: bool | None = None
    json_schema: str | None = None
    dtype: str | None = None
    regex: str | None = None

    def clone(self) -> SglSamplingParams:
        """A copy that can be changed."""
        return dataclasses.replace(self)

    def to_srt_kwargs(self) -> dict[str, Any]:
        """The `sampling_params` of a server of the reference."""
        return {name: getattr(self, name) for name in _SRT}

    def to_openai_kwargs(self) -> dict[str, Any]:
        """Keywords of OpenAI's clients: no top_k, no regex."""
        return self._named(_OPENAI)

    def to_anthropic_kwargs(self) -> dict[str, Any]:
        """Keywords of Anthropic's client: no penalties."""
        return self._named(_ANTHROPIC)

    def to_litellm_kwargs(self) -> dict[str, Any]:
        """Keywords of LiteLLM's `completion`."""
        return self._named(_LITELLM)

    def to_vertexai_kwargs(self) -> dict[str, Any]:
        """Keywords of Vertex AI's GenerationConfig; no stop is left out there."""
        values = self._named(_VERTEX)
        if not values["stop_sequences"]:
            del values["stop_sequences"]
        return values

    def _named(self, names: dict[str, str]) -> dict[str, Any]:
        return {wire: getattr(self, name) for name, wire in names.items()}
