"""The public Engine: a model in this process, for programs and for single requests."""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

from espalier.backends.base import LogprobOptions, derive_seed
from espalier.backends.direct import run_all, run_all_async, stream_all, stream_all_async
from espalier.backends.local import LocalBackend, sample_seed
from espalier.backends.wire import TokenText, WireInput, one_sample, read_inputs, wire_output
from espalier.engine.async_engine import AsyncEngine
from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.pool_size import default_pool_size
from espalier.engine.request import EngineRequest, RequestOutput
from espalier.engine.sampler import Sampler
from espalier.errors import ChatTemplateError, PromptError, UserInputError
from espalier.exec.executor import ExecutorOptions
from espalier.exec.factory import make_executor, slot_bytes
from espalier.exec.memory import available_bytes
from espalier.loaders.model import LoadedModel, load_model
from espalier.loaders.resolve import resolve_model
from espalier.settings import MAX_THREADS, default_model
from espalier.tokenizer.chat_template import ChatTemplate
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.types import TextSegment, flag, whole_number

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine can be told; the keywords of `Engine`. Raises UserInputError for a bad number.

    Attributes:
        weights: "int8", "int4", "bf16", "f32", or "auto" (4-bit tensors stay so, others int8).
        kv_dtype: "bf16", "int8", "f32", or "auto" (f32 with f32 weights, else bf16).
        executor: "native" (C++) or "reference" (numpy, slow, the oracle).
        num_threads: threads that compute; None for ESPALIER_THREADS, else every core that the
            process may use (its affinity, and whole cores of its control groups' quotas).
        max_total_tokens: slots of the KV pool, which cached and running tokens share. None: as many
            as fit into a quarter of the free memory, from 2,048 to 65,536.
        max_running_requests: sequences that run at a time; more wait.
        chunked_prefill_size: prompt tokens that are computed in one step, over all sequences.
        schedule_policy: "lpm" (longest cached prefix first), "fcfs", "dfs-weight" or "random".
        context_length: most tokens of a prompt with its output; None for what the model was made
            for, or the pool holds.
        random_seed: the seeds of calls without one are derived from it, so that a program gives
            the same answers in each run.
        jump_forward: False computes forced tokens one by one; outputs are the same, later.
        canonical: False constrains outputs by masks alone, as other engines do; outputs may differ.
    """

    weights: str = "auto"
    kv_dtype: str = "auto"
    executor: str = "native"
    num_threads: int | None = None
    max_total_tokens: int | None = None
    max_running_requests: int = 64
    chunked_prefill_size: int = 512
    schedule_policy: str = "lpm"
    context_length: int | None = None
    random_seed: int = 0
    jump_forward: bool = True
    canonical: bool = True

    def __post_init__(self) -> None:
        for name, low, high in _WHOLE_RANGES:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL_NUMBERS:
                continue
            if not low <= whole_number(name, value, UserInputError) <= high:
                raise UserInputError(f"{name} is {value}; {low} to {high} is allowed.")
        for name in ("jump_forward", "canonical"):
            flag(name, getattr(self, name), UserInputError)


def engine_settings(what: str, given: Mapping[str, Any]) -> EngineSettings:
    """The settings given by keyword; raises TypeError for one that does not exist."""
    allowed = [entry.name for entry in fields(EngineSettings)]
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise TypeError(
            f"{what}() got {', '.join(unknown)}, which it does not know; besides the model it "
            f"takes {', '.join(allowed)}."
        )
    return EngineSettings(**given)


_WHOLE_RANGES = (
    ("num_threads", 1, MAX_THREADS),
    ("max_total_tokens", 1, 2**31 - 2),
    ("max_running_requests", 1, 2**20),
    ("chunked_prefill_size", 1, 2**20),
    ("context_length", 1, 2**31 - 2),
    ("random_seed", 0, 2**63 - 1),
)
_OPTIONAL_NUMBERS = ("num_threads", "max_total_tokens", "context_length")


class Engine:
    """A model in this process: weights, KV cache and a thread that computes.

    Use it as the backend of programs (`set_default_backend(engine)`, or `backend=engine`), or send
    it single requests. Several engines may live side by side. End it by `shutdown`, a `with` block,
    or the end of the program.

    Args:
        model: an alias ("smollm2", the default), a .gguf file, a Hugging Face folder, or org/name
            on the hub. An alias that is missing is pulled. `model_path` is the reference's name
            for it.
        settings: see EngineSettings, for instance `num_threads=2`. An unknown one: TypeError.

    Raises ModelNotFoundError, DownloadError, ModelFileError, UnsupportedError or CapacityError.
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        model_path: str | Path | None = None,
        **settings: Any,
    ) -> None:
        self.settings = engine_settings("Engine", settings)
        if model is not None and model_path is not None:
            raise TypeError("Engine() got both model and model_path, which mean the same.")
        chosen = model if model is not None else model_path
        self._start(load_model(resolve_model(chosen), name=_report_name(chosen)))

    def _start(self, model: LoadedModel) -> None:
        core = _make_core(model, self.settings)
        model.weights.release_pages()  # what is packed is not needed twice
        self._tokenizer = model.tokenizer
        self._engine = AsyncEngine(core)
        self._endpoint = LocalBackend(
            self._engine,
            model.tokenizer,
            template=_template(model),
            model_name=model.name,
            random_seed=self.settings.random_seed,
        )
        self._call_numbers = itertools.count()

    @property
    def endpoint(self) -> LocalBackend:
        """The backend of programs."""
        return self._endpoint

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self._tokenizer

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer, by the reference's name."""
        return self._tokenizer

    def generate(
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        *,
        stream: bool = False,
        **logprobs: Any,
    ) -> Any:
        """Continues one prompt or many; shapes are those of the reference's `/generate`.

        Returns `{"text", "output_ids", "meta_info"}`; for a list of prompts or `n` > 1 a list of
        these, `n` for each prompt, in order. With `stream` an iterator of such dicts, each with the
        text so far; where there are several, each has its `index`. Closing the iterator cancels.

        `logprobs` are `return_logprob=False, logprob_start_len=-1` (output only),
        `top_logprobs_num=0, return_text_in_logprobs=False`. A prompt's text may spell control
        tokens. Without a `sampling_seed`, one is derived from the engine's `random_seed` and the
        number of the call. Raises PromptError, SamplingError or UserInputError (ValueErrors),
        TypeError for an unknown keyword, CapacityError and EngineClosedError.
        """
        job = self._job(prompt, sampling_params, input_ids, logprobs)
        if stream:
            return job.stream(self._engine)
        return job.answers(run_all(self._engine, job.requests))

    async def async_generate(
        self,
        prompt: str | Sequence[str] | None = None,
        sampling_params: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        input_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        *,
        stream: bool = False,
        **logprobs: Any,
    ) -> Any:
        """`generate` for async code; with `stream` the awaited result is an async iterator."""
        job = self._job(prompt, sampling_params, input_ids, logprobs)
        if stream:
            return job.stream_async(self._engine)
        return job.answers(await run_all_async(self._engine, job.requests))

    def _job(
        self, prompt: Any, sampling_params: Any, input_ids: Any, logprobs: Mapping[str, Any]
    ) -> _Job:
        options = _logprob_options(logprobs)
        inputs, is_list = read_inputs(prompt, input_ids, sampling_params, options)
        requests = [request for one in inputs for request in self._requests(one)]
        text_of = self._tokenizer.token_text if options.return_text_in_logprobs else None
        is_list = is_list or any(one.sampling.n > 1 for one in inputs)
        return _Job(requests, text_of, is_list)

    def _requests(self, one: WireInput) -> list[EngineRequest]:
        ids = self._ids(one.prompt)
        seed = one.sampling.sampling_seed
        if seed is None:
            seed = derive_seed(self.settings.random_seed, next(self._call_numbers))
        return [
            EngineRequest(
                self._endpoint.new_id(),
                ids,
                one_sample(one.sampling),
                seed=sample_seed(seed, index),
                return_logprob=one.logprobs.return_logprob,
                logprob_start_len=one.logprobs.logprob_start_len,
                top_logprobs_num=one.logprobs.top_logprobs_num,
                constraint=one.constraint,
            )
            for index in range(one.sampling.n)
        ]

    def _ids(self, prompt: str | tuple[int, ...]) -> tuple[int, ...]:
        if not prompt:
            raise PromptError("the prompt is empty; give text, or at least one token id.")
        if isinstance(prompt, str):
            return self._endpoint.encoder.encode((TextSegment(prompt),)).all
        return prompt

    def flush_cache(self) -> bool:
        """Empties the prefix cache of all that no request uses; true if it is empty now."""
        return self._endpoint.flush_cache()

    def get_server_info(self) -> dict[str, Any]:
        """The model, the engine's options and its counts."""
        return self._endpoint.server_info()

    def shutdown(self) -> None:
        """Ends the engine and frees its memory; later calls raise EngineClosedError."""
        self._engine.shutdown()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()


@dataclass(frozen=True, slots=True)
class _Job:
    """Engine requests of one call, and the form of the answer."""

    requests: list[EngineRequest]
    text_of: TokenText | None
    is_list: bool

    def answers(self, outputs: Sequence[RequestOutput]) -> Answer | list[Answer]:
        answers = [wire_output(output, self.text_of) for output in outputs]
        return answers if self.is_list else answers[0]

    def stream(self, engine: AsyncEngine) -> Iterator[Answer]:
        with closing(stream_all(engine, self.requests)) as progress:
            for index, output in progress:
                yield self._answer_so_far(index, output)

    async def stream_async(self, engine: AsyncEngine) -> AsyncIterator[Answer]:
        async with aclosing(stream_all_async(engine, self.requests)) as progress:
            async for index, output in progress:
                yield self._answer_so_far(index, output)

    def _answer_so_far(self, index: int, output: RequestOutput) -> Answer:
        answer = wire_output(output, self.text_of)
        return {**answer, "index": index} if self.is_list else answer


class Runtime:
    """The reference's Runtime: here an Engine in this process, with no server and no port.

    Args:
        model_path: as `Engine`'s model.
        log_level: level of Espalier's log messages.
        settings: see EngineSettings. Other arguments of the reference's server: TypeError.
    """

    def __init__(self, model_path: str | Path, log_level: str = "error", **settings: Any) -> None:
        engine_settings("Runtime", settings)
        logging.getLogger("espalier").setLevel(log_level.upper())
        self.engine = Engine(model_path, **settings)

    @property
    def endpoint(self) -> LocalBackend:
        """The backend of programs."""
        return self.engine.endpoint

    def get_tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.engine.tokenizer

    def generate(
        self, prompt: Any, sampling_params: Mapping[str, Any] | None = None, **logprobs: Any
    ) -> Any:
        """As `Engine.generate`, without streaming."""
        return self.engine.generate(prompt, sampling_params, **logprobs)

    async def async_generate(
        self, prompt: str, sampling_params: Mapping[str, Any] | None = None
    ) -> AsyncIterator[str]:
        """Yields the text of one sample as it comes."""
        num_sent = 0
        async for answer in await self.engine.async_generate(prompt, sampling_params, stream=True):
            text: str = answer["text"]
            if len(text) > num_sent:
                yield text[num_sent:]
                num_sent = len(text)

    def cache_prefix(self, prefix: str) -> None:
        """Computes a prompt and keeps it in the prefix cache."""
        self.engine.generate(prefix, {"max_new_tokens": 0})

    def flush_cache(self) -> bool:
        """Empties the prefix cache of all that no request uses; true if it is empty now."""
        return self.engine.flush_cache()

    def shutdown(self) -> None:
        """Ends the engine; later calls raise EngineClosedError."""
        self.engine.shutdown()


def _report_name(model: str | Path | None) -> str | None:
    """The alias or hub name by which a model was asked for; None where that was a path."""
    name = default_model() if model is None else str(model)
    return None if isinstance(model, Path) or Path(name).expanduser().exists() else name


def _make_core(model: LoadedModel, settings: EngineSettings) -> EngineCore:
    geometry = model.plan.geometry
    num_slots = settings.max_total_tokens
    if num_slots is None:
        num_slots = default_num_slots(model, settings, available_bytes())
    context_length = settings.context_length
    if context_length is None:
        context_length = min(geometry.max_context, num_slots)
    elif context_length > geometry.max_context:
        raise UserInputError(
            f"context_length is {context_length}; {model.name} was made for {geometry.max_context}."
        )
    options = EngineOptions(
        num_slots=num_slots,
        context_length=context_length,
        max_running_requests=settings.max_running_requests,
        chunk_tokens=settings.chunked_prefill_size,
        jump_forward=settings.jump_forward,
        canonical=settings.canonical,
        schedule_policy=settings.schedule_policy,  # type: ignore[arg-type]  # it converts
        random_seed=settings.random_seed,
    )
    executor_options = ExecutorOptions(
        num_slots=num_slots,
        weights=settings.weights,
        kv_dtype=settings.kv_dtype,
        num_threads=settings.num_threads,
        max_rows=options.max_step_rows,
    )
    executor = make_executor(settings.executor, model.plan, model.weights, executor_options)
    sampler = Sampler(geometry.vocab_size, executor.isa, executor.thread_pool)
    return EngineCore(executor, model.tokenizer, sampler, options)


def default_num_slots(model: LoadedModel, settings: EngineSettings, free_bytes: int | None) -> int:
    """Slots of the KV pool where none are given; see EngineSettings.max_total_tokens."""
    per_slot = slot_bytes(
        settings.executor, model.plan.geometry, settings.weights, settings.kv_dtype
    )
    return default_pool_size(per_slot, free_bytes)


def _template(model: LoadedModel) -> ChatTemplate | ChatTemplateError:
    try:
        return model.role_template()
    except ChatTemplateError as error:
        return error


_LOGPROB_NAMES = tuple(entry.name for entry in fields(LogprobOptions))


def _logprob_options(given: Mapping[str, Any]) -> LogprobOptions:
    unknown = sorted(set(given) - set(_LOGPROB_NAMES))
    if unknown:
        raise TypeError(
            f"generate() got {', '.join(unknown)}, which it does not know; it takes prompt, "
            f"sampling_params, input_ids, stream, {', '.join(_LOGPROB_NAMES)}."
        )
    return LogprobOptions(**{name: value for name, value in given.items() if value is not None})
