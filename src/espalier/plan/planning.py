"""From a finished planned run to a Plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from espalier.engine.options import EngineOptions
from espalier.errors import UserInputError, shown
from espalier.plan.answers import Answers
from espalier.plan.assumptions import Assumptions, Turns
from espalier.plan.backend import PlanBackend
from espalier.plan.counting import count
from espalier.plan.figures import FailedRow, PartPlan, part_names
from espalier.plan.model import PlannedModel
from espalier.plan.plan import Plan
from espalier.plan.prices import PriceTable
from espalier.types import whole_number

UNLIMITED = "unlimited"
_MAX_SLOTS = 2**31 - 2


def cache_size(given: Any, model: PlannedModel) -> int | None:
    """The cache's tokens: a number, "unlimited" (None), or for None what an engine would have."""
    if given is None:
        return model.pool_size
    if given == UNLIMITED:
        return None
    number = whole_number("cache_tokens", given, UserInputError)
    if not 1 <= number <= _MAX_SLOTS:
        raise UserInputError(
            f"cache_tokens is {shown(given)}; 1 to {_MAX_SLOTS:,}, or {UNLIMITED!r}, is allowed."
        )
    return number


class Planning:
    """One planned run: the backend for the program, and the plan once it has ended."""

    def __init__(
        self, model: PlannedModel, assumptions: Assumptions, cache_tokens: int | None
    ) -> None:
        self.model = model
        self._cache_tokens = cache_tokens
        self._turns = Turns(assumptions)
        self._answers = Answers(model.tokenizer, model.vocab_size, self._turns)
        num_slots = _MAX_SLOTS if cache_tokens is None else cache_tokens
        self.backend = PlanBackend(
            model.tokenizer,
            template=model.template,
            model_name=model.name,
            options=EngineOptions(
                num_slots=num_slots, context_length=min(model.max_context, num_slots)
            ),
            answers=self._answers,
        )

    def begin_row(self, index: int) -> None:
        """Says whose requests come now."""
        self.backend.log.row = index

    def finish(
        self,
        program: str,
        num_rows: int,
        failed: Sequence[FailedRow],
        prices: PriceTable,
        read_names: set[str],
    ) -> Plan:
        """The plan. Raises UserInputError for stated names that no call of the program has."""
        self.backend.shutdown()
        log = self.backend.log
        counts = count(log, self._cache_tokens)
        self._check_names({site.variable for site in counts.parts if site is not None})
        total = counts.total()
        unlimited = total
        if counts.num_evicted:
            log.tree.forget_cache()
            unlimited = count(log, None).total()
        distinct, needed = log.tree.count_prompt_tokens()
        names = part_names(list(counts.parts))
        parts = tuple(
            PartPlan(name, place, counts.kinds[site], part, self._assumed(site), name in read_names)
            for (name, place), (site, part) in zip(names, counts.parts.items(), strict=True)
        )
        return Plan(
            program,
            self.model.name,
            num_rows,
            tuple(failed),
            self._cache_tokens,
            parts,
            total,
            unlimited.computed_tokens,
            distinct,
            needed,
            counts.num_evicted,
            prices,
            log.tree,
            log.records,
            counts,
            self.model.tokenizer,
        )

    def _assumed(self, site: Any) -> str:
        basis = self._answers.bases.get(site)
        if basis is None:
            return ""
        return ", ".join(kind for kind, _ in basis.counts.most_common())

    def _check_names(self, known: set[str | None]) -> None:
        assumptions = self._turns.assumptions
        unread = sorted(name for name in assumptions.lengths if name not in self._turns.used)
        if unread and known.issuperset(unread):
            raise UserInputError(
                f"an output length is stated for {', '.join(map(repr, unread))}, which is a "
                "selection and generates nothing; state its choice by assume."
            )
        unknown = sorted(assumptions.names - known - self._turns.used)
        if unknown:
            names = ", ".join(sorted(name for name in known if name is not None)) or "none"
            raise UserInputError(
                f"something is stated for {', '.join(map(repr, unknown))}, which no call of the "
                f"program sets; its calls set {names}."
            )
