"""A backend without a model: it answers from a script, for tests and for trying programs out."""

from __future__ import annotations

import asyncio
import itertools
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from espalier.backends.base import (
    ChoiceScores,
    GenerateCall,
    GenerateResult,
    Message,
    OnDelta,
    RoleTemplate,
    Sample,
    ScoreCall,
)
from espalier.constraint import Constraint
from espalier.engine.stop_search import cut_at_stop
from espalier.errors import (
    BackendError,
    ChatTemplateError,
    EngineClosedError,
    PromptError,
    UserInputError,
)
from espalier.types import (
    FinishReason,
    Prompt,
    SamplingParams,
    TokenLogprob,
    Usage,
    prompt_text,
)

Answer = str | BaseException | Sequence[str]
Answers = (
    str
    | BaseException
    | Sequence[Answer]
    | Iterator[Answer]
    | Mapping[str, Answer]
    | Callable[["ScriptedCall"], Answer]
)
MAX_RECORDED_CALLS = 100_000
_WORD = re.compile(r"\s*\S+|\s+")
_LIKELY, _UNLIKELY = -0.1, -5.0  # logprob of each token of the scripted choice, and of others


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A call as it came: kind "generate", "score" or "prefill", and the prompt."""

    kind: str
    text: str
    prompt: Prompt
    sampling: SamplingParams | None = None
    constraint: Constraint | None = None
    choices: tuple[str, ...] = ()
    seed_key: int = 0


class PlainRoles:
    """Roles as `USER: text` lines, for backends without a chat template of their own."""

    stop: tuple[str, ...] = ()

    def opening(self, role: str, history: Sequence[Message]) -> str:
        """The role's name in capitals and a colon."""
        return f"{role.upper()}:"

    def closing(self, role: str, history: Sequence[Message]) -> str:
        """A line break."""
        return "\n"


class ScriptedBackend:
    """Answers from a script; counts fake tokens (words or bytes); records calls in `calls`.

    Attributes:
        calls: the last 100,000 calls, in order of arrival.
        max_in_flight: most generations and selections that were at work at once.

    Args:
        answers: one text for every call; a list of texts, one for each call in turn; a dict from
            a part of the prompt to a text, of which the part that ends last in the prompt counts
            (the longest, where several end there); or a function of the ScriptedCall. An exception
            in place of a text is raised. A list in place of a text gives one text to each of `n`
            samples. A selection chooses the choice that equals its answer.
        template: text around roles; None stands for a model without a chat template.
        tokens: "word" or "byte": what counts as a token.
        latency_s: seconds that a call takes, or (lowest, highest) to draw from by `seed`.
        failure_rate: share of calls that fail with BackendError, drawn by `seed`.
        gives_token_ids: false answers as a service that tells no tokens.

    Raises UserInputError for values that contradict this.
    """

    def __init__(
        self,
        answers: Answers = "ok",
        *,
        template: RoleTemplate | None = PlainRoles(),  # noqa: B008 - it has no state
        tokens: str = "word",
        latency_s: float | tuple[float, float] = 0.0,
        failure_rate: float = 0.0,
        seed: int = 0,
        gives_token_ids: bool = True,
        model_name: str = "scripted",
    ) -> None:
        if tokens not in ("word", "byte"):
            raise UserInputError(f"tokens is {tokens!r}; 'word' or 'byte' is allowed.")
        low, high = latency_s if isinstance(latency_s, tuple) else (latency_s, latency_s)
        if not 0 <= low <= high or not 0 <= failure_rate <= 1:
            raise UserInputError(
                f"latency_s is {latency_s!r} and failure_rate is {failure_rate!r}; seconds from 0, "
                "or (lowest, highest), and a share from 0 to 1 are allowed."
            )
        self.calls: deque[ScriptedCall] = deque(maxlen=MAX_RECORDED_CALLS)
        self.max_in_flight = 0
        self.model_name = model_name
        self._answers = iter(answers) if isinstance(answers, list) else answers
        self._template = template
        self._tokens = tokens
        self._latency = (low, high)
        self._failure_rate = failure_rate
        self._random = random.Random(seed)
        self._gives_token_ids = gives_token_ids
        self._vocabulary: dict[str, int] = {}
        self._in_flight = 0
        self._closed = False
        self._request_numbers = itertools.count()

    def role_template(self) -> RoleTemplate:
        """The template given; raises ChatTemplateError where it is None."""
        if self._template is None:
            raise ChatTemplateError("this scripted backend has no chat template; give one.")
        return self._template

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        """Answers a generation, token by token where somebody reads along."""
        recorded = self._record(
            ScriptedCall(
                "generate",
                prompt_text(call.prompt),
                call.prompt,
                call.sampling,
                call.constraint,
                (),
                call.seed_key,
            )
        )
        if not recorded.text:
            raise PromptError("the prompt is empty; append text before a generation.")
        started = time.perf_counter()
        pause_s = self._draw_latency()
        async with _InFlight(self):
            answers = self._samples(recorded, call.sampling.n)
            cut = [self._cut(answer, call.sampling) for answer in answers]
            if on_delta is not None:
                await self._stream([tokens for tokens, _ in cut], pause_s, on_delta)
            elif pause_s:
                await asyncio.sleep(pause_s)
        num_prompt_tokens = len(self._split(recorded.text))
        samples = [
            self._sample(tokens, reason, num_prompt_tokens, time.perf_counter() - started)
            for tokens, reason in cut
        ]
        generated = sum(len(tokens) for tokens, _ in cut)
        return GenerateResult(tuple(samples), self._usage(num_prompt_tokens, generated, pause_s))

    async def score(self, call: ScoreCall) -> ChoiceScores:
        """Makes the choice that equals the answer the likely one."""
        recorded = self._record(
            ScriptedCall("score", prompt_text(call.prompt), call.prompt, choices=call.choices)
        )
        pause_s = self._draw_latency()
        async with _InFlight(self):
            (answer,) = self._samples(recorded, 1)
            if answer not in call.choices:
                raise BackendError(
                    f"the script answers {answer!r}, which is none of {list(call.choices)!r}."
                )
            if pause_s:
                await asyncio.sleep(pause_s)
        scores = tuple(
            self._score(choice, _LIKELY if choice == answer else _UNLIKELY)
            for choice in call.choices
        )
        alone = tuple(self._score(choice, _UNLIKELY) for choice in call.choices)
        num_prompt_tokens = len(self._split(recorded.text))
        return ChoiceScores(
            scores,
            alone if call.needs_unconditional else None,
            self._usage(num_prompt_tokens, 0, pause_s),
        )

    async def prefill(self, prompt: Prompt) -> Usage:
        """Records the prompt."""
        self._check_open()
        self.calls.append(ScriptedCall("prefill", prompt_text(prompt), prompt))
        num_prompt_tokens = len(self._split(prompt_text(prompt)))
        return Usage(prompt_tokens=num_prompt_tokens, computed_tokens=num_prompt_tokens)

    def flush_cache(self) -> bool:
        """True: there is no cache."""
        return True

    def server_info(self) -> dict[str, Any]:
        """Name and number of calls."""
        return {"model": self.model_name, "num_calls": len(self.calls)}

    def shutdown(self) -> None:
        """Makes later calls raise EngineClosedError."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise EngineClosedError("this scripted backend was shut down; make another.")

    def _record(self, call: ScriptedCall) -> ScriptedCall:
        self._check_open()
        self.calls.append(call)
        return call

    def _draw_latency(self) -> float:
        low, high = self._latency
        return self._random.uniform(low, high) if high else 0.0

    def _samples(self, call: ScriptedCall, num_samples: int) -> list[str]:
        if self._failure_rate and self._random.random() < self._failure_rate:
            raise BackendError("a failure of the script's failure_rate.")
        answer = self._answer(call)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            return [answer] * num_samples
        answers = list(answer)
        if len(answers) != num_samples:
            raise BackendError(
                f"the script has {len(answers)} texts for a call that asks for {num_samples}."
            )
        return answers

    def _answer(self, call: ScriptedCall) -> Answer:
        answers = self._answers
        if isinstance(answers, (str, BaseException)):
            return answers
        if isinstance(answers, Mapping):
            ends = {key: call.text.rfind(key) + len(key) for key in answers if key in call.text}
            if not ends:
                raise BackendError(
                    f"the script has no answer after {call.text[-80:]!r}; it has "
                    f"{sorted(answers)!r}."
                )
            return answers[max(ends, key=lambda key: (ends[key], len(key)))]
        if callable(answers):
            return answers(call)
        assert isinstance(answers, Iterator)
        answer: Answer | None = next(answers, None)
        if answer is None:
            raise BackendError(f"the script is at its end; call {len(self.calls)} has no answer.")
        return answer

    def _cut(self, answer: str, sampling: SamplingParams) -> tuple[list[str], FinishReason]:
        """The tokens up to the first stop or the most tokens, and why they end there."""
        reason = FinishReason("stop")
        answer, stop = cut_at_stop(answer, sampling)
        if stop is not None:
            reason = FinishReason("stop", matched=stop)
        tokens = self._split(answer)
        if len(tokens) > sampling.max_new_tokens:
            tokens = tokens[: sampling.max_new_tokens]
            reason = FinishReason("length", length=sampling.max_new_tokens)
        if self._tokens == "byte":
            tokens = tokens[: _whole_characters(tokens)]
        return tokens, reason

    def _split(self, text: str) -> list[str]:
        if self._tokens == "word":
            return _WORD.findall(text)
        return [chr(byte) for byte in text.encode()]

    def _join(self, tokens: Sequence[str]) -> str:
        if self._tokens == "word":
            return "".join(tokens)
        return bytes(map(ord, tokens)).decode()

    def _token_id(self, token: str) -> int:
        if self._tokens == "byte":
            return ord(token)
        return self._vocabulary.setdefault(token, len(self._vocabulary))

    async def _stream(
        self, samples: Sequence[Sequence[str]], pause_s: float, on_delta: OnDelta
    ) -> None:
        longest = max(len(tokens) for tokens in samples)
        sent = [0] * len(samples)
        for step in range(longest):
            await asyncio.sleep(pause_s / longest)
            for index, tokens in enumerate(samples):
                end = step + 1
                if end > len(tokens):
                    continue
                end = sent[index] + _whole_characters(tokens[sent[index] : end], self._tokens)
                if end > sent[index]:
                    text = self._join(tokens[sent[index] : end])
                    sent[index] = end
                    on_delta(index, text, {"completion_tokens": end, "finish_reason": None})

    def _sample(
        self, tokens: Sequence[str], reason: FinishReason, num_prompt_tokens: int, took_s: float
    ) -> Sample:
        token_ids = tuple(self._token_id(token) for token in tokens)
        meta = {
            "id": f"scripted-{next(self._request_numbers)}",
            "prompt_tokens": num_prompt_tokens,
            "completion_tokens": len(tokens),
            "cached_tokens": 0,
            "forced_tokens": 0,
            "finish_reason": reason.as_wire(),
            "e2e_latency": took_s,
        }
        return Sample(self._join(tokens), token_ids if self._gives_token_ids else None, meta)

    def _score(self, choice: str, logprob: float) -> tuple[TokenLogprob, ...]:
        return tuple(TokenLogprob(logprob, self._token_id(token)) for token in self._split(choice))

    def _usage(self, num_prompt_tokens: int, num_generated: int, ttft_s: float) -> Usage:
        return Usage(
            calls=1,
            prompt_tokens=num_prompt_tokens,
            computed_tokens=num_prompt_tokens,
            generated_tokens=num_generated,
            ttft_sum_s=ttft_s,
            ttft_count=1,
        )


class _InFlight:
    """Counts a call while it is at work."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend

    async def __aenter__(self) -> None:
        self._backend._in_flight += 1
        self._backend.max_in_flight = max(self._backend.max_in_flight, self._backend._in_flight)

    async def __aexit__(self, *_: object) -> None:
        self._backend._in_flight -= 1


def _whole_characters(tokens: Sequence[str], kind: str = "byte") -> int:
    """How many leading byte tokens make whole characters; words always do."""
    if kind == "word":
        return len(tokens)
    data = bytes(map(ord, tokens))
    for end in range(len(data), max(-1, len(data) - 4), -1):
        try:
            data[:end].decode()
        except UnicodeDecodeError:
            continue
        return end
    return 0
