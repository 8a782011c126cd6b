"""Runs of programs on a real engine whose answers are kept, as statements for a plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from espalier.backends.base import (
    CallSite,
    ChoiceScores,
    GenerateCall,
    GenerateResult,
    OnDelta,
    RoleTemplate,
    ScoreCall,
)
from espalier.backends.local import LocalBackend
from espalier.lang.choices import mean_logprob
from espalier.types import Prompt, Usage


@dataclass
class Recorded:
    """Answers by variable, in the order in which the program asked for them."""

    lengths: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    texts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    choices: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def stated(self, texts_of: Sequence[str]) -> dict[str, Any]:
        """Arguments of `plan`: choices, the texts of some variables, lengths of all others.

        `texts_of` holds names, or beginnings of names that end in `*`.
        """
        assume: dict[str, list[str]] = dict(self.choices)
        lengths = {}
        for name, values in self.lengths.items():
            if any(_fits(name, pattern) for pattern in texts_of):
                assume[name] = self.texts[name]
            lengths[name] = values
        return {"assume": assume, "output_tokens": lengths}


def _fits(name: str, pattern: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


class RecordingBackend:
    """An engine's backend that keeps what it answers; for programs that make one call at a time."""

    def __init__(self, inner: LocalBackend) -> None:
        self._inner = inner
        self.recorded = Recorded()

    @property
    def model_name(self) -> str:
        return self._inner.model_name

    def role_template(self) -> RoleTemplate:
        return self._inner.role_template()

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        result = await self._inner.generate(call, on_delta)
        name = _name(call.site)
        for sample in result.samples:
            self.recorded.texts[name].append(sample.text)
            self.recorded.lengths[name].append(sample.meta_info["completion_tokens"])
        return result

    async def score(self, call: ScoreCall) -> ChoiceScores:
        scores = await self._inner.score(call)
        means = [mean_logprob([entry.as_wire() for entry in row]) for row in scores.token_logprobs]
        self.recorded.choices[_name(call.site)].append(call.choices[means.index(max(means))])
        return scores

    async def prefill(self, prompt: Prompt) -> Usage:
        return await self._inner.prefill(prompt)

    def flush_cache(self) -> bool:
        return self._inner.flush_cache()

    def server_info(self) -> dict[str, Any]:
        return self._inner.server_info()

    def shutdown(self) -> None:
        """The engine is its owner's."""


def _name(site: CallSite | None) -> str:
    assert site is not None
    assert site.variable is not None, "a recorded call needs a name"
    return site.variable
