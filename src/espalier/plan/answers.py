"""The answers that stand for a model's in a plan: tokens and text of a stated length or wording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from espalier.backends.base import CallSite, GenerateCall
from espalier.constrain.dtype import dtype_stops
from espalier.constraint import ConstraintKind
from espalier.plan.assumptions import Turns
from espalier.plan.form_output import FormOutput, FormOutputs
from espalier.tokenizer.tokenizer import Tokenizer
from espalier.types import SamplingParams

_NUM_WORDS = 64


@dataclass(frozen=True, slots=True)
class PlannedAnswer:
    """One sample: its text and tokens, and what it counts as.

    `num_generated` counts an end token or a stop as well; `token_ids` do not hold it.
    """

    text: str
    token_ids: tuple[int, ...]
    num_generated: int
    num_forced: int = 0
    num_start: int = 0  # tokens that are known before the first step
    num_last: int = 1  # tokens at the end that come at once, and so are never computed


@dataclass(slots=True)
class Basis:
    """How the answers of one part came about: number of samples by each kind of assumption."""

    counts: Counter[str] = field(default_factory=Counter)


class Answers:
    """Makes answers. `bases` tells for each call site what was assumed."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, turns: Turns) -> None:
        self._tokenizer = tokenizer
        self._turns = turns
        self._forms = FormOutputs(tokenizer, vocab_size)
        self._words = placeholder_ids(tokenizer)
        self._num_drawn = 0
        self._texts: dict[tuple[int, ...], str] = {}
        self.bases: dict[CallSite | None, Basis] = {}

    def samples(self, call: GenerateCall) -> list[PlannedAnswer]:
        """The `n` samples of a call. Raises as the engine does for a form it cannot enforce."""
        return [self._sample(call) for _ in range(call.sampling.n)]

    def choice(self, site: CallSite | None, choices: Sequence[str]) -> str | None:
        """The choice that is assumed for a selection, None where none is stated.

        The text may be stated without the spaces around it.
        """
        text = self._turns.text(None if site is None else site.variable)
        self._note(site, "the first choice" if text is None else "stated text")
        if text is None or text in choices:
            return text
        return next((choice for choice in choices if choice.strip() == text.strip()), text)

    def _note(self, site: CallSite | None, kind: str) -> None:
        self.bases.setdefault(site, Basis()).counts[kind] += 1

    def _sample(self, call: GenerateCall) -> PlannedAnswer:
        name = None if call.site is None else call.site.variable
        text, length = self._turns.text(name), self._turns.length(name)
        if call.sampling.max_new_tokens == 0:
            return PlannedAnswer("", (), 0)
        if call.constraint is not None:
            return self._formed(call, text, length)
        if text is not None:
            self._note(call.site, "stated text")
            return self._free_text(_cut(text, call.sampling.stop), length, call.sampling)
        is_stated = length is not None or self._turns.assumptions.is_default_stated
        self._note(call.site, "stated length" if is_stated else "default length")
        return self._placeholder(call, length)

    def _free_text(self, text: str, length: int | None, params: SamplingParams) -> PlannedAnswer:
        ids = tuple(self._tokenizer.encode(text, at_start=False)) if text else ()
        if len(ids) > params.max_new_tokens:
            ids = ids[: params.max_new_tokens]
            text = self._tokenizer.decode(ids)
        return self._padded(text, ids, length, params)

    def _padded(
        self, text: str, ids: tuple[int, ...], length: int | None, params: SamplingParams
    ) -> PlannedAnswer:
        """An answer of that text with as many tokens as are stated for it."""
        limit = params.max_new_tokens
        if length is None:
            return PlannedAnswer(text, ids, min(len(ids) + 1, limit))
        num_generated = max(min(length, limit), min(len(ids) + 1, limit))
        num_text = num_generated if num_generated == limit else num_generated - 1
        filler = self._filler(max(0, num_text - len(ids)), 0)
        return PlannedAnswer(text, ids + filler, num_generated)

    def _placeholder(self, call: GenerateCall, stated: int | None) -> PlannedAnswer:
        params = call.sampling
        length = self._turns.assumptions.default_tokens if stated is None else stated
        if params.ignore_eos and not params.stop and not params.stop_token_ids:
            length = params.max_new_tokens
        length = min(max(length, params.min_new_tokens, 1), params.max_new_tokens)
        # An answer that is cut by its length has no end token.
        num_text = length if length == params.max_new_tokens else length - 1
        variant = 0
        if not params.is_greedy:
            self._num_drawn += 1
            variant = self._num_drawn
        ids = self._filler(num_text, variant)
        return PlannedAnswer(self._text(ids), ids, length)

    def _filler(self, count: int, variant: int) -> tuple[int, ...]:
        """Tokens of ordinary words; those of another variant differ from the first one on."""
        if count == 0:
            return ()
        words = self._words
        start, turn = variant % len(words), variant // len(words) % len(words)
        head = (words[start], words[turn])[:count]
        body = words[:16]
        return head + (body * (count // len(body) + 1))[: count - len(head)]

    def _text(self, ids: tuple[int, ...]) -> str:
        text = self._texts.get(ids)
        if text is None:
            if len(self._texts) > 4096:
                self._texts.clear()
            text = self._texts[ids] = self._tokenizer.decode(ids)
        return text

    def _formed(self, call: GenerateCall, text: str | None, length: int | None) -> PlannedAnswer:
        params, constraint = call.sampling, call.constraint
        assert constraint is not None
        kind = "stated text"
        if text is None:
            text = self._forms.shortest(constraint, params.max_new_tokens)
            kind = "a shortest text of the form"
        if text is None:
            self._note(call.site, "placeholder, as no text of the form was found")
            return self._placeholder(call, length)
        cuts = dtype_stops(constraint.text) if constraint.kind is ConstraintKind.DTYPE else ()
        output = self._forms.output(
            constraint, _cut(text, (*params.stop, *cuts)), params.max_new_tokens
        )
        self._note(call.site, kind if output.has_form else "stated text, which breaks the form")
        return self._padded_form(output, length, params)

    def _padded_form(
        self, output: FormOutput, length: int | None, params: SamplingParams
    ) -> PlannedAnswer:
        limit, ids = params.max_new_tokens, output.token_ids
        num_ends = 0 if output.ends_itself else 1
        num_generated = min(len(ids) + num_ends, limit)
        num_last = output.num_last if num_generated == len(ids) else 1
        if length is not None and min(length, limit) > num_generated:
            num_generated = min(length, limit)
            ids += self._filler(num_generated - num_ends - len(ids), 0)
            num_last = 1
        return PlannedAnswer(
            output.text, ids, num_generated, output.num_forced, output.num_start, num_last
        )


def _cut(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string in it, as the engine gives it."""
    ends = [text.index(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text


def placeholder_ids(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Tokens of a space and a word of small letters each, or any text where there are none."""
    found: list[int] = []
    anything: list[int] = []
    for token_id in range(tokenizer.vocab_size):
        if tokenizer.is_control(token_id):
            continue
        data = tokenizer.token_bytes(token_id)
        if len(data) > 3 and data[:1] == b" " and data[1:].isalpha() and data[1:].islower():
            found.append(token_id)
            if len(found) == _NUM_WORDS:
                return tuple(found)
        elif data.isalpha() and len(anything) < _NUM_WORDS:
            anything.append(token_id)
    return tuple(found or anything or [0])
