"""The engine of this process as a backend of programs."""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from espalier.backends.base import (
    ChoiceScores,
    GenerateCall,
    GenerateResult,
    OnDelta,
    RoleTemplate,
    Sample,
    ScoreCall,
    derive_seed,
)
from espalier.backends.direct import MAX_IN_FLIGHT
from espalier.backends.offsets import prompt_offset, token_offsets
from espalier.backends.prompt_ids import Ids, PromptEncoder, PromptIds
from espalier.backends.scoring import (
    ScoringPlan,
    TreeScores,
    branches,
    choice_logprobs,
    join_branches,
    plan_scoring,
    splits_at,
)
from espalier.backends.text_probability import log_probability_of_text
from espalier.backends.together import together
from espalier.backends.token_index import TokenIndex
from espalier.backends.wire import TokenText, meta_info, one_sample
from espalier.engine.async_engine import AsyncEngine
from espalier.engine.request import EngineRequest, RequestOutput
from espalier.errors import ChatTemplateError, PromptError
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.types import Prompt, SamplingParams, TokenLogprob, Usage

_PREFILL = SamplingParams(max_new_tokens=0)
_ONE_TOKEN = SamplingParams(max_new_tokens=1, temperature=0.0, ignore_eos=True)

MAX_INLINE_CHARACTERS = 100_000  # a longer prompt is tokenised off the loop of all programs


class LocalBackend:
    """Runs the calls of programs on an AsyncEngine; see backends.base.Backend.

    Seeds: a call without one gets `derive_seed(random_seed, call.seed_key)`; sample 0 of a call has
    the call's seed s, sample i has `derive_seed(s, i)`.

    Usage: a prompt that several samples or choices share counts once. The tokens of choices count
    as prompt tokens; those that several choices begin with count as cached for all but one. Looking
    up next tokens at the border of a prompt and its choices is not counted.

    Attributes:
        engine: the engine.
        tokenizer: the model's tokenizer.
        encoder: tokenises prompts.

    Args:
        template: the chat template, or the ChatTemplateError that says why there is none.
        random_seed: what the seeds of calls without one are derived from.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        tokenizer: Tokenizer,
        *,
        template: RoleTemplate | ChatTemplateError,
        model_name: str,
        random_seed: int = 0,
    ) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.encoder = PromptEncoder(tokenizer, engine.options.context_length)
        self.random_seed = random_seed
        self._model_name = model_name
        self._template = template
        self._index: TokenIndex | None = None
        self._numbers = itertools.count()
        self._slots_of_loop: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, asyncio.Semaphore
        ] = weakref.WeakKeyDictionary()

    @property
    def model_name(self) -> str:
        """Name of the model."""
        return self._model_name

    def role_template(self) -> RoleTemplate:
        """The chat template; raises ChatTemplateError where the model has none."""
        if isinstance(self._template, ChatTemplateError):
            raise ChatTemplateError(str(self._template)) from self._template
        return self._template

    def new_id(self) -> str:
        """A request id that this backend has not used."""
        return f"local-{next(self._numbers)}"

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        """Samples `call.sampling.n` continuations of a prompt that is computed once."""
        requests = self._requests(call, await self._ids(call.prompt))
        text_of = self.tokenizer.token_text if call.logprobs.return_text_in_logprobs else None
        outputs = await together(
            [
                self._run(request)
                if on_delta is None
                else self._stream(request, index, on_delta, text_of)
                for index, request in enumerate(requests)
            ]
        )
        samples = tuple(self._sample(output, text_of) for output in outputs)
        return GenerateResult(samples, usage_of(outputs))

    def _requests(self, call: GenerateCall, ids: Ids) -> list[EngineRequest]:
        sampling, logprobs = call.sampling, call.logprobs
        seed = sampling.sampling_seed
        if seed is None:
            seed = derive_seed(self.random_seed, call.seed_key)
        one = one_sample(sampling)
        return [
            EngineRequest(
                self.new_id(),
                ids,
                one,
                seed=sample_seed(seed, index),
                return_logprob=logprobs.return_logprob,
                logprob_start_len=logprobs.logprob_start_len,
                top_logprobs_num=logprobs.top_logprobs_num,
                constraint=call.constraint,
            )
            for index in range(sampling.n)
        ]

    async def _run(self, request: EngineRequest) -> RequestOutput:
        async with self._slots():
            return await self.engine.generate(request)

    def _slots(self) -> asyncio.Semaphore:
        """Keeps calls with many samples or choices from filling the engine's queue."""
        loop = asyncio.get_running_loop()
        slots = self._slots_of_loop.get(loop)
        if slots is None:
            slots = self._slots_of_loop[loop] = asyncio.Semaphore(MAX_IN_FLIGHT)
        return slots

    async def _stream(
        self, request: EngineRequest, index: int, on_delta: OnDelta, text_of: TokenText | None
    ) -> RequestOutput:
        num_sent = 0
        last: RequestOutput | None = None
        async with self._slots(), aclosing(self.engine.stream(request)) as outputs:
            async for last in outputs:
                if last.finish_reason is None and len(last.text) > num_sent:
                    on_delta(index, last.text[num_sent:], meta_info(last, text_of))
                    num_sent = len(last.text)
        assert last is not None, "a stream without an end"
        return last

    def _sample(self, output: RequestOutput, text_of: TokenText | None) -> Sample:
        ids = output.text_token_ids
        token_ids = None if ids is None else tuple(ids)
        spans = None if token_ids is None else output.forced_spans
        return Sample(output.text, token_ids, meta_info(output, text_of), spans)

    def prompt_offset(self, prompt: Prompt, num_tokens: int) -> int:
        """Characters of a prompt's text that its first `num_tokens` tokens stand for."""
        return prompt_offset(self.tokenizer, self.encoder, prompt, num_tokens)

    def token_offsets(self, token_ids: Sequence[int]) -> list[int]:
        """Where each generated token begins in their text, and where the last one ends."""
        return token_offsets(self.tokenizer, token_ids)

    async def prefill(self, prompt: Prompt) -> Usage:
        """Computes a prompt and keeps it in the prefix cache."""
        output = await self._prefill(await self._ids(prompt))
        return _prompt_usage(output.prompt_tokens, output.cached_tokens)

    async def score(self, call: ScoreCall) -> ChoiceScores:
        """Scores choices exactly (backends/scoring.py); the prompt is computed once."""
        prompt = await self._encode(call.prompt)
        plan = plan_scoring(self.tokenizer, self.encoder, prompt, call.choices)
        first = await self._prefill(plan.shared) if plan.num_shared else None
        tail_logprob = await self._tail_logprob(plan) if plan.tail else 0.0
        found = await self._score_tree(plan.sequences, plan.num_shared)
        scores = tuple(
            choice_logprobs(self.tokenizer, logprobs, plan.tail, tail_logprob)
            for logprobs in found.logprobs
        )
        alone = await self._unconditional(call.choices) if call.needs_unconditional else None
        return ChoiceScores(scores, alone, _scoring_usage(plan, first, found.num_computed))

    async def _tail_logprob(self, plan: ScoringPlan) -> float:
        if self._index is None:
            self._index = TokenIndex(self.tokenizer)
        return await log_probability_of_text(plan.shared, plan.tail, self._index, self._next)

    async def _score_tree(self, sequences: Sequence[Ids], start: int) -> TreeScores:
        """Scores sequences from `start` on; what many begin with is computed once where it pays."""
        end = splits_at(sequences, start)
        if end is None:
            rows = await together([self._score(sequence, start) for sequence in sequences])
            return TreeScores(rows, sum(len(sequence) - start for sequence in sequences))
        head = await self._score(sequences[0][:end], start)
        groups = branches(sequences, end)
        found = await together([self._score_tree(group, end) for group in groups])
        return join_branches(sequences, end, head, groups, found)

    async def _unconditional(self, choices: Sequence[str]) -> tuple[tuple[TokenLogprob, ...], ...]:
        """Log-probabilities of the choices alone, after the model's BOS where it has one."""
        start = self.encoder.encode_run((), at_start=True)
        rows = await together(
            [
                self._score(
                    start + self.encoder.encode_run(((choice, False),), at_start=False), len(start)
                )
                for choice in choices
            ]
        )
        return tuple(tuple(row) for row in rows)

    async def _prefill(self, ids: Ids) -> RequestOutput:
        return await self._run(EngineRequest(self.new_id(), ids, _PREFILL))

    async def _score(self, ids: Ids, start: int) -> list[TokenLogprob]:
        request = EngineRequest(
            self.new_id(), ids, _PREFILL, return_logprob=True, logprob_start_len=start
        )
        output = await self._run(request)
        assert output.input_logprobs is not None
        return output.input_logprobs.tokens

    async def _next(self, context: Ids, wanted: Sequence[int]) -> list[float]:
        """Log-probabilities of tokens as the next one."""
        request = EngineRequest(
            self.new_id(),
            context,
            _ONE_TOKEN,
            return_logprob=True,
            token_ids_logprob=tuple(wanted),
        )
        output = await self._run(request)
        assert output.output_logprobs is not None
        entries = output.output_logprobs.chosen_ids[0]
        return [entry.logprob for entry in entries if entry.logprob is not None]

    async def _encode(self, prompt: Prompt) -> PromptIds:
        if sum(len(segment.text) for segment in prompt) <= MAX_INLINE_CHARACTERS:
            return self.encoder.encode(prompt)
        return await asyncio.to_thread(self.encoder.encode, prompt)

    async def _ids(self, prompt: Prompt) -> Ids:
        ids = (await self._encode(prompt)).all
        if not ids:
            raise PromptError("the prompt is empty; append text before a generation.")
        return ids

    def flush_cache(self) -> bool:
        """Empties the prefix cache of all that no request uses; true if it is empty now."""
        return self.engine.flush_cache()

    def server_info(self) -> dict[str, Any]:
        """The model, the engine's options and its counts."""
        options = asdict(self.engine.options)
        options["schedule_policy"] = self.engine.options.schedule_policy.value
        stats = self.engine.stats()
        return {
            "model": self._model_name,
            "options": options,
            "stats": {**asdict(stats), "hit_rate": stats.hit_rate},
            "grammars": asdict(self.engine.compiler_statistics()),
        }

    def shutdown(self) -> None:
        """Ends the engine; later calls raise EngineClosedError."""
        self.engine.shutdown()


def sample_seed(seed: int, index: int) -> int:
    """Seed of sample `index` of a call: the call's own for the first."""
    return seed if index == 0 else derive_seed(seed, index)


def _prompt_usage(num_prompt_tokens: int, num_cached_tokens: int) -> Usage:
    return Usage(
        prompt_tokens=num_prompt_tokens,
        cached_tokens=num_cached_tokens,
        computed_tokens=num_prompt_tokens - num_cached_tokens,
    )


def usage_of(outputs: Sequence[RequestOutput]) -> Usage:
    """What one call cost: its prompt once, as the sample found it that computed most of it."""
    first = min(outputs, key=lambda output: output.cached_tokens)
    usage = _prompt_usage(first.prompt_tokens, first.cached_tokens)
    usage.calls = 1
    usage.generated_tokens = sum(len(output.output_ids) for output in outputs)
    usage.forced_tokens = sum(output.forced_tokens for output in outputs)
    times = [output.ttft_s for output in outputs if output.ttft_s is not None]
    if times:
        usage.ttft_sum_s, usage.ttft_count = min(times), 1
    waits = [output.queue_s for output in outputs if output.queue_s is not None]
    if waits:
        usage.queue_sum_s, usage.queue_count = min(waits), 1
    return usage


def _scoring_usage(plan: ScoringPlan, first: RequestOutput | None, num_computed: int) -> Usage:
    num_own = sum(len(sequence) - plan.num_shared for sequence in plan.sequences)
    num_cached = (0 if first is None else first.cached_tokens) + num_own - num_computed
    usage = _prompt_usage(plan.num_shared + num_own, num_cached)
    usage.calls = 1
    return usage
