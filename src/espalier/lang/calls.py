"""Operations of a stream that call the model: a generation, a selection."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from espalier.backends.base import (
    CallSite,
    ChoiceScores,
    ChooseCall,
    Chosen,
    GenerateCall,
    GenerateResult,
    LogprobOptions,
    OnDelta,
    ScoreCall,
    finish_type,
)
from espalier.errors import BackendError, ProgramError, shown
from espalier.lang.choices import ChoicesDecision, TokenEntry, mean_logprob
from espalier.lang.failure import Failure, described
from espalier.lang.form import Form
from espalier.lang.ir import SglSelect
from espalier.lang.location import SourceLine
from espalier.lang.promise import ErrorSource
from espalier.lang.recording import CallRecorder
from espalier.lang.stream import Stream
from espalier.lang.variables import Variable, rest_of
from espalier.types import GREEDY_TEMPERATURE, SamplingParams, TokenLogprob, Usage


class CallOp:
    """A call of the model that sets a variable."""

    __slots__ = ("key", "location", "record", "timeout_s", "variable")
    wakes = True
    kind = "call"

    def __init__(
        self,
        variable: Variable,
        location: SourceLine | None,
        key: int,
    ) -> None:
        self.variable = variable
        self.location = location
        self.key = key
        self.timeout_s: float | None = None
        self.record: CallRecorder | None = None  # where the run is recorded

    @property
    def num_samples(self) -> int:
        """Texts that it asks for."""
        return 1

    @property
    def place(self) -> str:
        """What is called and where it was written."""
        return f"{self._description} at {self.location}" if self.location else self._description

    @property
    def _description(self) -> str:
        name = self.variable.name
        return self.kind if name is None else f"{self.kind} {name!r}"

    @property
    def site(self) -> CallSite:
        """The call's place in the program."""
        return CallSite(self.variable.name, *(self.location or (None, None)))

    def failed(self, error: BaseException) -> Failure:
        """A failure that names the call."""
        return Failure(error, self._description, self.variable.name, self.location, self)

    def abandon(self, failure: Failure) -> None:
        """The variable will not be set."""
        error = failure.raised_for(self, self._description, self.variable.name, self.location)
        self.variable.fail(error)
        if self.record is not None:
            is_own = failure.source is self
            self.record.failed(
                described(failure.cause) if is_own else str(error()), is_cancelled=not is_own
            )


class GenerateOp(CallOp):
    """Samples a continuation, appends the first sample and sets the variable."""

    __slots__ = ("form", "logprobs", "sampling")
    kind = "gen"

    def __init__(
        self,
        variable: Variable,
        location: SourceLine | None,
        key: int,
        *,
        sampling: SamplingParams,
        logprobs: LogprobOptions,
        form: Form | None,
    ) -> None:
        super().__init__(variable, location, key)
        self.sampling = sampling
        self.logprobs = logprobs
        self.form = form

    async def run(self, stream: Stream) -> None:
        """Calls the backend."""
        prompt, backend = stream.transcript.prompt(), stream.program.backend
        constraint = None if self.form is None else self.form.constraint
        call = GenerateCall(
            prompt, self.sampling, self.logprobs, constraint, self.key, stream.chat(), self.site
        )
        result = await stream.call(
            lambda: backend.generate(call, self._on_delta(stream)), self.record
        )
        self._accept(stream, result)

    @property
    def num_samples(self) -> int:
        """Samples that it asks for."""
        return self.sampling.n

    def _on_delta(self, stream: Stream) -> OnDelta | None:
        if stream.feed is None:
            return None
        feeds = self.variable.feeds

        def on_delta(index: int, text: str, meta: Mapping[str, Any]) -> None:
            feeds[index].push(text, meta)
            if index == 0:
                stream.append_text(text)

        return on_delta

    def _accept(self, stream: Stream, result: GenerateResult) -> None:
        samples = result.samples
        if len(samples) != self.sampling.n:
            raise BackendError(f"{self.sampling.n} samples were asked for; {len(samples)} came.")
        first = samples[0]
        self.variable.usage = result.usage
        if self.record is not None:
            self.record.generated(samples, result.usage, stream.program.backend)
        if self.variable.feeds:
            stream.append_text(rest_of(first.text, self.variable.feeds[0]))
        stream.transcript.add_generated(first.text, first.token_ids)
        if first.token_ids:
            # All but the last token lie in the backend's cache: forks need no call for this.
            stream.num_cached_segments = len(stream.transcript.segments)
        if self.sampling.n == 1:
            self._set(first.text, whole_meta(first.meta_info))
        else:
            metas = [whole_meta(sample.meta_info) for sample in samples]
            self._set([sample.text for sample in samples], metas)

    def _set(self, texts: str | list[str], meta: Any) -> None:
        """Sets the variable to the texts, or to what they say where the form has a reader."""
        read = None if self.form is None else self.form.read
        if read is None:
            self.variable.resolve(texts, meta)
            return
        is_one = isinstance(texts, str)
        try:
            values = [read(text) for text in ([texts] if isinstance(texts, str) else texts)]
        except Exception as error:  # a type's own validators may raise anything
            unread = self._unread(texts, meta, error)
            self.variable.end_unread(texts, meta, unread)
            if self.record is not None:
                self.record.failed(str(unread()), is_cancelled=False)
        else:
            self.variable.resolve(values[0] if is_one else values, meta, texts)

    def _unread(self, texts: str | list[str], meta: Any, error: Exception) -> ErrorSource:
        """The error of a text that is no value of its form, as one that was cut is none."""
        cause = ProgramError(
            f"the text {shown(texts)} is no whole value of its form: {self._why(meta, error)}. "
            f"s.text({self.variable.name!r}) gives the text as it is."
        )
        cause.__cause__ = error
        return self.failed(cause).raised

    def _why(self, meta: Any, error: Exception) -> str:
        metas = meta if isinstance(meta, list) else [meta]
        if any(finish_type(item) == "length" for item in metas):
            return f"it reached max_new_tokens ({self.sampling.max_new_tokens}); allow more"
        for reason in (item.get("finish_reason") for item in metas):
            if isinstance(reason, Mapping) and isinstance(reason.get("matched"), str):
                return f"the stop {shown(reason['matched'])} may have ended it early"
        told = " ".join(str(error).split())[:200].rstrip(".")
        return f"reading it raised {type(error).__name__}: {told}"


class SelectOp(CallOp):
    """Appends the choice that the method decides for and sets the variable to it."""

    __slots__ = ("select",)
    kind = "select"

    def __init__(self, variable: Variable, key: int, select: SglSelect) -> None:
        super().__init__(variable, select.location, key)
        self.timeout_s = select.timeout_s
        self.select = select

    async def run(self, stream: Stream) -> None:
        """Scores the choices and decides."""
        backend, method = stream.program.backend, self.select.choices_method
        if hasattr(backend, "choose"):
            await self._let_choose(stream, backend.choose)
            return
        call = ScoreCall(
            stream.transcript.prompt(),
            self.select.choices,
            bool(getattr(method, "requires_unconditional_logprobs", False)),
            self.site,
        )
        scores = await stream.call(lambda: backend.score(call), self.record)
        self._accept(stream, *self._decide(scores), scores.usage, self._means(scores))

    async def _let_choose(
        self, stream: Stream, choose: Callable[[ChooseCall], Awaitable[Chosen]]
    ) -> None:
        """The backend decides by itself."""
        select, prompt = self.select, stream.transcript.prompt()
        call = ChooseCall(
            prompt, select.choices, select.temperature, select.choices_method, stream.chat()
        )
        chosen = await stream.call(lambda: choose(call), self.record)
        self._accept(stream, chosen.text, whole_meta(chosen.meta_info), chosen.usage, [])

    def _accept(
        self,
        stream: Stream,
        chosen: str,
        meta: dict[str, Any],
        usage: Usage,
        means: list[tuple[str, float]],
    ) -> None:
        self.variable.usage = usage
        if self.record is not None:
            self.record.chose(chosen, means, usage)
        stream.transcript.add_generated(chosen, None)
        stream.append_text(chosen)
        self.variable.resolve(chosen, meta)

    def _means(self, scores: ChoiceScores) -> list[tuple[str, float]]:
        means = [mean_logprob(as_entries(logprobs)) for logprobs in scores.token_logprobs]
        return list(zip(self.select.choices, means, strict=True))

    def _decide(self, scores: ChoiceScores) -> tuple[str, dict[str, Any]]:
        entries = [as_entries(logprobs) for logprobs in scores.token_logprobs]
        alone = scores.unconditional
        means = [mean_logprob(choice) for choice in entries]
        decision = self.select.choices_method(
            choices=list(self.select.choices),
            normalized_prompt_logprobs=means,
            input_token_logprobs=entries,
            output_token_logprobs=[[] for _ in entries],
            unconditional_token_logprobs=None if alone is None else [as_entries(a) for a in alone],
        )
        if decision.decision not in self.select.choices:
            raise ProgramError(
                f"the choices method decided for {decision.decision!r}, which is none of the "
                f"choices {list(self.select.choices)!r}."
            )
        meta = {**(decision.meta_info or {}), "choices_method": repr(self.select.choices_method)}
        usage = scores.usage
        meta.update(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=0,
            cached_tokens=usage.cached_tokens,
            forced_tokens=usage.forced_tokens,
            finish_reason=None,
        )
        return self._sampled(decision, means), whole_meta(meta)

    def _sampled(self, decision: ChoicesDecision, means: Sequence[float]) -> str:
        temperature = self.select.temperature
        if temperature < GREEDY_TEMPERATURE:
            return decision.decision
        scores = means if decision.scores is None else decision.scores
        seed = self.key if self.select.seed is None else self.select.seed
        return self.select.choices[softmax_sample(scores, temperature, seed)]


# Of every call, whatever its backend; None where that does not tell (reference T-62).
_TOLD = (
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "forced_tokens",
    "speculation_hits",
    "finish_reason",
)


def whole_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """A meta_info with all counts that each call has, None where they are not known."""
    return {**dict.fromkeys(_TOLD), **meta}


def as_entries(logprobs: Sequence[TokenLogprob]) -> list[TokenEntry]:
    """The reference's form of token log-probabilities."""
    return [entry.as_wire() for entry in logprobs]


def softmax_sample(scores: Sequence[float], temperature: float, seed: int) -> int:
    """An index drawn from softmax(scores / temperature), a function of the seed alone."""
    best = max(scores)
    if best == -math.inf:
        weights = [1.0] * len(scores)
    else:
        weights = [math.exp((score - best) / temperature) for score in scores]
    return random.Random(seed).choices(range(len(scores)), weights)[0]
