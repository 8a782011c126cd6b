"""The reference's wire format: `/generate` requests in plain values, outputs in plain dicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from espalier.backends.base import LogprobOptions
from espalier.backends.wire_constraint import split_constraint
from espalier.constraint import Constraint
from espalier.engine.request import LogprobTable, RequestOutput
from espalier.errors import PromptError, UserInputError, shown
from espalier.types import SamplingParams, TokenLogprob

TokenText = Callable[[int], str]
WireLogprob = tuple[float | None, int, str | None]


@dataclass(frozen=True, slots=True)
class WireInput:
    """One prompt of a request, as text or as token ids, and how to continue it."""

    prompt: str | tuple[int, ...]
    sampling: SamplingParams
    logprobs: LogprobOptions
    constraint: Constraint | None = None


def read_inputs(
    prompt: Any, input_ids: Any, sampling_params: Any, logprobs: LogprobOptions
) -> tuple[list[WireInput], bool]:
    """The prompts of a request, and whether they were given as a list.

    `prompt` is text or a list of texts, `input_ids` a list of ids or a list of such lists; one of
    the two. `sampling_params` is a dict for all, or a list with one for each. Raises PromptError,
    SamplingError or UserInputError.
    """
    if (prompt is None) == (input_ids is None):
        raise UserInputError("give one of prompt and input_ids, not both or neither.")
    prompts, is_list = _texts(prompt) if prompt is not None else _id_lists(input_ids)
    params = _params(sampling_params, len(prompts))
    return [
        WireInput(text, sampling, logprobs, constraint)
        for text, (sampling, constraint) in zip(prompts, params, strict=True)
    ], is_list


def _texts(prompt: Any) -> tuple[list[Any], bool]:
    if isinstance(prompt, str):
        return [prompt], False
    if isinstance(prompt, Sequence) and all(isinstance(text, str) for text in prompt):
        return list(prompt), True
    raise PromptError(f"prompt is {shown(prompt)}; text or a list of texts is allowed.")


def _id_lists(input_ids: Any) -> tuple[list[Any], bool]:
    if hasattr(input_ids, "tolist"):  # an array
        input_ids = input_ids.tolist()
    if isinstance(input_ids, (list, tuple)):
        input_ids = [ids.tolist() if hasattr(ids, "tolist") else ids for ids in input_ids]
    if isinstance(input_ids, Sequence) and not isinstance(input_ids, (str, bytes)):
        if input_ids and all(isinstance(ids, Sequence) for ids in input_ids):
            return [_ids(ids) for ids in input_ids], True
        return [_ids(input_ids)], False
    raise PromptError(
        f"input_ids is {shown(input_ids)}; a list of token ids, or of such, is allowed."
    )


def _ids(values: Sequence[Any]) -> tuple[int, ...]:
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool):
            raise PromptError(f"input_ids holds {shown(value)}; token ids are allowed.")
    return tuple(values)


_Params = tuple[SamplingParams, Constraint | None]


def _params(given: Any, count: int) -> list[_Params]:
    if given is None or isinstance(given, Mapping):
        return [_one_of(given)] * count
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) == count:
        return [_one_of(one) for one in given]
    raise UserInputError(
        f"sampling_params is {shown(given)}; a dict, or a list with one for each of the {count} "
        "prompts is allowed."
    )


def _one_of(given: Any) -> _Params:
    if not isinstance(given, Mapping):
        return SamplingParams.from_wire(given), None
    rest, constraint = split_constraint(given)
    return SamplingParams.from_wire(rest), constraint


def one_sample(sampling: SamplingParams) -> SamplingParams:
    """The parameters of a single sample."""
    return sampling if sampling.n == 1 else replace(sampling, n=1)


def meta_info(output: RequestOutput, token_text: TokenText | None = None) -> dict[str, Any]:
    """The `meta_info` of an output, finished or not; `token_text` adds texts to logprobs."""
    reason = output.finish_reason
    meta: dict[str, Any] = {
        "id": output.request_id,
        "prompt_tokens": output.prompt_tokens,
        "completion_tokens": len(output.output_ids),
        "cached_tokens": output.cached_tokens,
        "forced_tokens": output.forced_tokens,
        "finish_reason": None if reason is None else reason.as_wire(),
        "e2e_latency": output.e2e_s,
    }
    if output.output_logprobs is not None:
        inputs = output.input_logprobs or LogprobTable()
        for name, table in (("input", inputs), ("output", output.output_logprobs)):
            meta[f"{name}_token_logprobs"] = wire_logprobs(table.tokens, token_text)
            meta[f"{name}_top_logprobs"] = [wire_logprobs(row, token_text) for row in table.top]
    return meta


def wire_logprobs(
    entries: Sequence[TokenLogprob], token_text: TokenText | None
) -> list[WireLogprob]:
    """Entries as (logprob, token_id, text or None)."""
    if token_text is None:
        return [entry.as_wire() for entry in entries]
    return [(entry.logprob, entry.token_id, token_text(entry.token_id)) for entry in entries]


def wire_output(output: RequestOutput, token_text: TokenText | None = None) -> dict[str, Any]:
    """The whole answer to a `/generate` request for one sample."""
    return {
        "text": output.text,
        "output_ids": list(output.output_ids),
        "meta_info": meta_info(output, token_text),
    }
