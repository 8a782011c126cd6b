"""Generations that reason before they answer: one variable for the answer, one for the reasoning.

Without a form and without stops one call writes both, and its text is split. Otherwise form and
stops are the answer's alone, and the calls are: the reasoning up to its closing mark, then the
answer after it. Where a model reasons only sometimes, the first few tokens say whether it does; if
it does not, they are thrown away and the answer starts where they did.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from espalier.backends.base import (
    GenerateCall,
    LogprobOptions,
    OnDelta,
    Sample,
    derive_seed,
    finish_type,
)
from espalier.constraint import Constraint
from espalier.errors import BackendError
from espalier.lang.calls import GenerateOp, whole_meta
from espalier.lang.failure import Failure
from espalier.lang.form import Form
from espalier.lang.location import SourceLine
from espalier.lang.options import STOP_NAMES
from espalier.lang.reasoning_format import ReasoningMarks, ReasoningSplitter, length_of_begun
from espalier.lang.stream import Stream
from espalier.lang.variables import Variable
from espalier.types import (
    Prompt,
    SamplingParams,
    Segment,
    TextSegment,
    TokenSegment,
    Usage,
    prompt_text,
)

T = TypeVar("T")
PROBE_TOKENS = 16  # enough for the space before an opening mark and the mark
_REASONING, _ANSWER = 1, 2  # parts of the seeds of later calls
_ADDED_COUNTS = ("completion_tokens", "forced_tokens", "e2e_latency")
_ADDED_LISTS = ("output_token_logprobs", "output_top_logprobs")


@dataclass(slots=True)
class _Thread:
    """What one sample has come to: its reasoning, its answer, and what they were made of."""

    splitter: ReasoningSplitter
    segments: list[Segment] = field(default_factory=list)
    metas: list[Mapping[str, Any]] = field(default_factory=list)
    streamed: str = ""  # of the call at work
    held: str = ""  # of that call: what may be a stop of the chat template
    answer: Sample | None = None
    is_reasoning: bool = True

    @property
    def num_tokens(self) -> int:
        return sum(meta.get("completion_tokens") or 0 for meta in self.metas)


class ReasoningOp(GenerateOp):
    """A generation whose reasoning is kept apart; see the module.

    Attributes:
        reasoning: the variable of the reasoning.
        keeps_reasoning: the state's text has all that the model wrote, else the answer alone.
        template_stops: stops of the chat template, which end the reasoning too.
        is_in_parts: form and stops are for the answer alone.
        strips_answer: space around the answer is left out; not where a form or a stop that is
            kept has it so.
        usage: what its calls have cost.
    """

    __slots__ = (
        "is_in_parts",
        "keeps_reasoning",
        "marks",
        "reasoning",
        "strips_answer",
        "template_stops",
        "usage",
    )

    def __init__(
        self,
        variable: Variable,
        location: SourceLine | None,
        key: int,
        *,
        sampling: SamplingParams,
        logprobs: LogprobOptions,
        form: Form | None,
        reasoning: Variable,
        marks: ReasoningMarks,
        keeps_reasoning: bool,
        template_stops: Sequence[str],
        has_stops: bool,
    ) -> None:
        super().__init__(variable, location, key, sampling=sampling, logprobs=logprobs, form=form)
        self.reasoning = reasoning
        self.marks = marks
        self.keeps_reasoning = keeps_reasoning
        self.template_stops = tuple(template_stops)
        self.is_in_parts = form is not None or has_stops
        self.strips_answer = form is None and not sampling.no_stop_trim
        self.usage = Usage()

    def abandon(self, failure: Failure) -> None:
        """Neither variable will be set."""
        super().abandon(failure)
        name = self.reasoning.name
        self.reasoning.fail(failure.raised_for(self, f"reasoning {name!r}", name, self.location))

    async def run(self, stream: Stream) -> None:
        """Calls the backend, once or in parts."""
        threads = [_Thread(ReasoningSplitter(self.marks)) for _ in range(self.sampling.n)]
        prompt = stream.transcript.prompt()
        if self.is_in_parts:
            await self._run_in_parts(stream, prompt, threads)
        else:
            samples = await self._call(stream, prompt, self.sampling, threads, self.key)
            for index, (thread, sample) in enumerate(zip(threads, samples, strict=True)):
                self._take(stream, thread, index, sample)
                self._end_reasoning(stream, thread, index)
        self._finish(stream, threads)

    async def _call(
        self,
        stream: Stream,
        prompt: Prompt,
        sampling: SamplingParams,
        threads: Sequence[_Thread],
        key: int,
        *,
        is_streamed: bool = True,
    ) -> Sequence[Sample]:
        """One call for the reasoning (and, in one go, the answer) of some threads."""

        def on_delta(index: int, text: str, meta: Mapping[str, Any]) -> None:
            self._push_begun(stream, threads[index], index, text, meta)

        call = GenerateCall(prompt, sampling, self.logprobs, None, key, stream.chat())
        return await self._generate(stream, call, on_delta if is_streamed else None)

    async def _generate(
        self, stream: Stream, call: GenerateCall, on_delta: OnDelta | None
    ) -> Sequence[Sample]:
        backend = stream.program.backend
        wanted = on_delta if stream.feed is not None else None
        result = await stream.call(lambda: backend.generate(call, wanted), self.record)
        self.usage.add(result.usage)
        if len(result.samples) != call.sampling.n:
            raise BackendError(
                f"{call.sampling.n} samples were asked for; {len(result.samples)} came."
            )
        return result.samples

    # Text as it comes.

    def _push_begun(
        self, stream: Stream, thread: _Thread, index: int, text: str, meta: Mapping[str, Any]
    ) -> None:
        """Pushes text, but for an end that may be a stop of the template: `_without_stop`."""
        stops = self.template_stops if self.is_in_parts else ()
        begun = thread.held + text
        end = len(begun) - max((length_of_begun(begun, stop) for stop in stops), default=0)
        thread.held = begun[end:]
        self._push(stream, thread, index, begun[:end], meta)

    def _push(
        self, stream: Stream, thread: _Thread, index: int, text: str, meta: Mapping[str, Any] | None
    ) -> None:
        thread.streamed += text
        reasoning, answer = thread.splitter.push(text)
        self._give_out(stream, index, reasoning, answer, meta)
        if self.keeps_reasoning and index == 0:
            stream.append_text(text)

    def _give_out(
        self, stream: Stream, index: int, reasoning: str, answer: str, meta: Any = None
    ) -> None:
        if self.variable.feeds:
            self.reasoning.feeds[index].push(reasoning, meta if reasoning else None)
            self.variable.feeds[index].push(answer, meta if answer else None)
        if index == 0 and not self.keeps_reasoning:
            stream.append_text(answer)

    def _take(self, stream: Stream, thread: _Thread, index: int, sample: Sample) -> None:
        """Takes the end of a call's text, of which a part may have streamed."""
        if not sample.text.startswith(thread.streamed):
            raise BackendError(
                f"the text streamed {thread.streamed!r} is no prefix of the final {sample.text!r}."
            )
        self._push(stream, thread, index, sample.text[len(thread.streamed) :], None)
        thread.streamed = thread.held = ""
        thread.segments += _segments(sample, self.marks)
        thread.metas.append(sample.meta_info)

    def _end_reasoning(self, stream: Stream, thread: _Thread, index: int) -> None:
        self._give_out(stream, index, *thread.splitter.end())

    # In parts.

    async def _run_in_parts(
        self, stream: Stream, prompt: Prompt, threads: Sequence[_Thread]
    ) -> None:
        budget = self.sampling.max_new_tokens
        is_probe = not self.marks.is_open
        first = self._reasoning_sampling(min(budget, PROBE_TOKENS) if is_probe else budget)
        samples = await self._call(
            stream, prompt, first, threads, self.key, is_streamed=not is_probe
        )
        await _all(
            [
                self._go_on(stream, prompt, thread, index, self._without_stop(sample))
                for index, (thread, sample) in enumerate(zip(threads, samples, strict=True))
            ]
        )

    def _reasoning_sampling(self, max_new_tokens: int) -> SamplingParams:
        """Sampling of the reasoning: it ends at its mark, which shows in the text."""
        known = {entry.name for entry in fields(SamplingParams)}
        no_stops: dict[str, Any] = {name: () for name in STOP_NAMES if name in known}
        no_stops["stop"] = (*self.template_stops, self.marks.closing)
        return replace(
            self.sampling,
            max_new_tokens=max_new_tokens,
            min_new_tokens=0,
            no_stop_trim=True,
            **no_stops,
        )

    def _without_stop(self, sample: Sample) -> Sample:
        """The sample without a stop of the chat template at its end."""
        stops = [stop for stop in self.template_stops if sample.text.endswith(stop)]
        if not stops:
            return sample
        text = sample.text.removesuffix(max(stops, key=len))
        return replace(sample, text=text, token_ids=None)

    async def _go_on(
        self, stream: Stream, prompt: Prompt, thread: _Thread, index: int, first: Sample
    ) -> None:
        """The rest of one sample's reasoning, and its answer."""
        marks, budget = self.marks, self.sampling.max_new_tokens
        thread.is_reasoning = marks.is_open or first.text.lstrip().startswith(marks.opening)
        if thread.is_reasoning:
            self._take(stream, thread, index, first)
            was_cut = finish_type(first.meta_info) == "length"
            left = budget - thread.num_tokens
            if was_cut and not marks.is_open and left > 0 and not thread.splitter.is_answering:
                rest = self._seeded(self._reasoning_sampling(left), _REASONING, index)
                key = derive_seed(self.key, _REASONING, index)
                (more,) = await self._generate(
                    stream,
                    self._call_after(stream, prompt, thread, rest, constraint=None, key=key),
                    lambda _, text, meta: self._push_begun(stream, thread, index, text, meta),
                )
                self._take(stream, thread, index, self._without_stop(more))
            is_closed = thread.splitter.is_answering
            self._end_reasoning(stream, thread, index)
            if not is_closed or budget <= thread.num_tokens:
                return
            self._add_gap(stream, thread, index)
        await self._answer(stream, prompt, thread, index)

    def _add_gap(self, stream: Stream, thread: _Thread, index: int) -> None:
        if self.marks.gap:
            thread.segments.append(TextSegment(self.marks.gap))
            if index == 0 and self.keeps_reasoning:
                stream.append_text(self.marks.gap)

    async def _answer(self, stream: Stream, prompt: Prompt, thread: _Thread, index: int) -> None:
        left = self.sampling.max_new_tokens - thread.num_tokens
        least = min(left, max(0, self.sampling.min_new_tokens - thread.num_tokens))
        sampling = replace(self.sampling, max_new_tokens=left, min_new_tokens=least)
        constraint = None if self.form is None else self.form.constraint

        thread.splitter.end()  # what comes is the answer

        def on_delta(_: int, text: str, meta: Mapping[str, Any]) -> None:
            if self.strips_answer:
                self._push(stream, thread, index, text, meta)
                return
            thread.streamed += text
            self.variable.feeds[index].push(text, meta)
            if index == 0:
                stream.append_text(text)

        sampling = self._seeded(sampling, _ANSWER, index)
        key = derive_seed(self.key, _ANSWER, index)
        call = self._call_after(stream, prompt, thread, sampling, constraint=constraint, key=key)
        (answer,) = await self._generate(stream, call, on_delta)
        rest = answer.text[len(thread.streamed) :]
        if self.strips_answer:
            self._push(stream, thread, index, rest, None)
            self._end_reasoning(stream, thread, index)
            if not self.keeps_reasoning and thread.splitter.answer != answer.text:
                answer = replace(answer, text=thread.splitter.answer, token_ids=None)
        elif index == 0:
            stream.append_text(rest)
        thread.answer = answer
        thread.metas.append(answer.meta_info)

    def _seeded(self, sampling: SamplingParams, part: int, index: int) -> SamplingParams:
        """Sampling of one sample, with a seed of its own where the generation has one."""
        seed = sampling.sampling_seed
        own = None if seed is None else derive_seed(seed, part, index)
        return replace(sampling, n=1, sampling_seed=own)

    def _call_after(
        self,
        stream: Stream,
        prompt: Prompt,
        thread: _Thread,
        sampling: SamplingParams,
        *,
        constraint: Constraint | None,
        key: int,
    ) -> GenerateCall:
        chat = stream.chat()
        if chat is not None:
            chat = replace(chat, open_text=chat.open_text + prompt_text(tuple(thread.segments)))
        whole = (*prompt, *thread.segments)
        return GenerateCall(whole, sampling, self.logprobs, constraint, key, chat)

    # The end.

    def _finish(self, stream: Stream, threads: Sequence[_Thread]) -> None:
        transcript, first = stream.transcript, threads[0]
        num_segments = len(transcript.segments)
        texts = [self._answer_text(thread) for thread in threads]
        if self.keeps_reasoning:
            transcript.extend(first.segments, ())
        if first.answer is not None:
            transcript.add_generated(first.answer.text, first.answer.token_ids)
        elif not self.keeps_reasoning:
            transcript.add_generated(texts[0], None)
        metas = [whole_meta(_merged_meta(thread)) for thread in threads]
        self.variable.usage = self.reasoning.usage = self.usage
        if self.record is not None:
            shown = [transcript.text(num_segments), *texts[1:]]
            samples = [Sample(text, None, meta) for text, meta in zip(shown, metas, strict=True)]
            self.record.generated(samples, self.usage, stream.program.backend)
        reasonings = [thread.splitter.reasoning for thread in threads]
        if self.sampling.n == 1:
            self.reasoning.resolve(reasonings[0], metas[0])
            self._set(texts[0], metas[0])
        else:
            self.reasoning.resolve(reasonings, metas)
            self._set(texts, metas)

    def _answer_text(self, thread: _Thread) -> str:
        if thread.answer is None or self.strips_answer:
            return thread.splitter.answer
        return thread.answer.text


def _segments(sample: Sample, marks: ReasoningMarks) -> list[Segment]:
    """A sample as part of a prompt; a closing mark at its end is a control token, if it is one."""
    if sample.token_ids:
        return [TokenSegment(sample.token_ids, sample.text)]
    if sample.text.endswith(marks.closing):
        text = sample.text.removesuffix(marks.closing)
        parts = [TextSegment(text, allow_special=False)] if text else []
        return [*parts, TextSegment(marks.closing)]
    return [TextSegment(sample.text, allow_special=False)] if sample.text else []


def _merged_meta(thread: _Thread) -> dict[str, Any]:
    """The meta_info of all calls of a sample as of one: the first's prompt, the last's end."""
    first, last = thread.metas[0], thread.metas[-1]
    merged = dict(last)
    if thread.answer is not None and thread.is_reasoning:
        merged["reasoning_tokens"] = sum(
            meta.get("completion_tokens") or 0 for meta in thread.metas[:-1]
        )
    for name in ("prompt_tokens", "cached_tokens"):
        if name in first:
            merged[name] = first[name]
    for name in _ADDED_COUNTS:
        values = [meta[name] for meta in thread.metas if meta.get(name) is not None]
        if values:
            merged[name] = sum(values)
    for name in _ADDED_LISTS:
        if name in last:
            merged[name] = [entry for meta in thread.metas for entry in meta.get(name, ())]
    return merged


async def _all(coroutines: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Awaits all; an error of one cancels the others and is raised once they have ended."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise
