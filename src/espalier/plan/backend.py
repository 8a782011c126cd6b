"""A backend without a model: real tokens, assumed answers, every request noted.

It answers each call as backends/local.py would count it, and knows nothing of what is made of the
counts.
"""

from __future__ import annotations

import threading
from typing import Any

from espalier.backends.base import (
    ChoiceScores,
    GenerateCall,
    GenerateResult,
    OnDelta,
    RoleTemplate,
    Sample,
    ScoreCall,
)
from espalier.backends.prompt_ids import Ids
from espalier.backends.scoring import num_scored_tokens, plan_scoring
from espalier.engine.options import EngineOptions
from espalier.engine.validation import check_size
from espalier.errors import ChatTemplateError, EngineClosedError, PromptError, UserInputError
from espalier.plan.answers import Answers, PlannedAnswer
from espalier.plan.line_encoder import LineEncoder
from espalier.plan.prefix_tree import PrefixNode, mark_generated, mark_prompt
from espalier.plan.request_log import (
    GenerateRecord,
    PrefillRecord,
    RequestLog,
    SampleEnd,
    ScoreRecord,
)
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.types import FinishReason, Prompt, SamplingParams, TokenLogprob, Usage

_CHOSEN, _OTHER = -0.1, -5.0  # logprobs of the tokens of the choice taken, and of the others


class PlanBackend:
    """Notes requests in `log`; see backends.base.Backend.

    Args:
        tokenizer: the model's tokenizer.
        template: the chat template, or the ChatTemplateError that says why there is none.
        options: the limits of the engine that is planned for: requests beyond them are refused.
        answers: what stands for the model's answers.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        template: RoleTemplate | ChatTemplateError,
        model_name: str,
        options: EngineOptions,
        answers: Answers,
    ) -> None:
        self.model_name = model_name
        self.log = RequestLog()
        self._tokenizer = tokenizer
        self._template = template
        self._options = options
        self._answers = answers
        self._encoder = LineEncoder(tokenizer, options.context_length)
        self._lock = threading.Lock()
        self._is_closed = False

    def role_template(self) -> RoleTemplate:
        """The chat template; raises ChatTemplateError where the model has none."""
        if isinstance(self._template, ChatTemplateError):
            raise ChatTemplateError(str(self._template)) from self._template
        return self._template

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        """Answers with what is assumed. Raises as the engine does for what does not fit."""
        ids = self._ids(call.prompt)
        check_size(len(ids), call.sampling.max_new_tokens, self._options)
        with self._lock:
            answers = self._answers.samples(call)
            cached = self._note_generation(call, ids, answers)
        usage = _prompt_usage(len(ids), cached)
        usage.calls = 1
        usage.generated_tokens = sum(answer.num_generated for answer in answers)
        usage.forced_tokens = sum(answer.num_forced for answer in answers)
        samples = tuple(_sample(answer, usage, call.sampling) for answer in answers)
        return GenerateResult(samples, usage)

    def _note_generation(self, call: GenerateCall, ids: Ids, answers: list[PlannedAnswer]) -> int:
        """Puts a generation into the tree; returns how much of its prompt was there."""
        tree = self.log.tree
        prompt, num_known = tree.insert(ids)
        ends = []
        cached = len(ids)
        for answer in answers:
            # What comes with the last choice is never computed.
            num_computed = max(0, answer.num_generated - answer.num_last)
            num_computed = min(len(answer.token_ids), num_computed)
            node = tree.insert(ids + answer.token_ids[:num_computed])[0] if num_computed else prompt
            mark_generated(prompt, node)
            limit = len(ids) + max(answer.num_start, 0) - 1
            ends.append(SampleEnd(node, min(limit, len(ids))))
            cached = min(cached, num_known, limit)
        mark_prompt(prompt)
        self.log.records.append(
            GenerateRecord(
                self.log.row,
                call.site,
                prompt,
                len(ids),
                tuple(ends),
                sum(answer.num_generated for answer in answers),
                sum(answer.num_forced for answer in answers),
            )
        )
        return cached

    async def score(self, call: ScoreCall) -> ChoiceScores:
        """Makes the assumed choice the likely one; counts as the engine's exact scoring does."""
        plan = plan_scoring(
            self._tokenizer, self._encoder, self._encoder.encode(call.prompt), call.choices
        )
        longest = max(map(len, plan.sequences))
        check_size(longest, 0, self._options)
        num_own = sum(len(sequence) - plan.num_shared for sequence in plan.sequences)
        num_scored = num_scored_tokens(plan.sequences, plan.num_shared)
        with self._lock:
            self._check_open()
            chosen = self._answers.choice(call.site, call.choices)
            shared, num_known = self._note_prompt(plan.shared) if plan.num_shared else (None, 0)
            nodes = tuple(self._note_prompt(sequence)[0] for sequence in plan.sequences)
            self.log.records.append(
                ScoreRecord(
                    self.log.row, call.site, shared, plan.num_shared, nodes, num_own, num_scored
                )
            )
        first = 0 if shared is None else min(num_known, plan.num_shared - 1)
        usage = _prompt_usage(plan.num_shared + num_own, first + num_own - num_scored)
        usage.calls = 1
        taken = _taken(call, chosen)
        rows = tuple(
            tuple(
                TokenLogprob(_CHOSEN if index == taken else _OTHER, token_id)
                for token_id in sequence[plan.num_shared :]
            )
            for index, sequence in enumerate(plan.sequences)
        )
        even = tuple((TokenLogprob(_OTHER, row[0].token_id),) * len(row) for row in rows)
        return ChoiceScores(rows, even if call.needs_unconditional else None, usage)

    async def prefill(self, prompt: Prompt) -> Usage:
        """Notes a prompt that forks share."""
        ids = self._ids(prompt)
        check_size(len(ids), 0, self._options)
        with self._lock:
            node, num_known = self._note_prompt(ids)
            self.log.records.append(PrefillRecord(self.log.row, node))
        return _prompt_usage(len(ids), min(num_known, len(ids) - 1))

    def _note_prompt(self, ids: Ids) -> tuple[PrefixNode, int]:
        node, num_known = self.log.tree.insert(ids)
        mark_prompt(node)
        return node, num_known

    def _ids(self, prompt: Prompt) -> Ids:
        self._check_open()
        ids = self._encoder.encode(prompt).all
        if not ids:
            raise PromptError("the prompt is empty; append text before a generation.")
        return ids

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineClosedError("this plan has ended; make another.")

    def flush_cache(self) -> bool:
        """False: what was asked for stays noted."""
        return False

    def server_info(self) -> dict[str, Any]:
        """The model's name, and that nothing is computed."""
        return {"model": self.model_name, "is_plan": True}

    def shutdown(self) -> None:
        """Makes later calls raise EngineClosedError."""
        self._is_closed = True


def _taken(call: ScoreCall, chosen: str | None) -> int:
    if chosen is None:
        return 0
    if chosen not in call.choices:
        name = None if call.site is None else call.site.variable
        raise UserInputError(
            f"the text assumed for {name!r} is {chosen!r}, which is none of its choices: "
            f"{', '.join(map(repr, call.choices))}."
        )
    return call.choices.index(chosen)


def _prompt_usage(num_prompt_tokens: int, num_cached_tokens: int) -> Usage:
    return Usage(
        prompt_tokens=num_prompt_tokens,
        cached_tokens=num_cached_tokens,
        computed_tokens=num_prompt_tokens - num_cached_tokens,
    )


def _sample(answer: PlannedAnswer, usage: Usage, sampling: SamplingParams) -> Sample:
    is_cut = answer.num_generated == sampling.max_new_tokens
    reason = FinishReason("length", length=answer.num_generated) if is_cut else FinishReason("stop")
    meta = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": answer.num_generated,
        "cached_tokens": usage.cached_tokens,
        "forced_tokens": answer.num_forced,
        "finish_reason": reason.as_wire(),
    }
    return Sample(answer.text, answer.token_ids, meta)
