"""What a constrained request must give, from the definitions alone.

The hash model is asked for every token in turn, with no cache, no batch and no jumps.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
from tests.engine.fakes import EOS_ID, VOCAB_SIZE, history_hash, logits_of, naive_logprob
from tests.engine.piece_tokenizer import PIECES, PieceTokenizer

from espalier.constrain.canonical import Canonicaliser
from espalier.constrain.compiler import compiler_of
from espalier.constrain.guide import Guide
from espalier.engine.request import EngineRequest, RequestOutput
from espalier.engine.sampler import SampledToken, SampleRow
from espalier.engine.sampler_reference import ReferenceSampler
from espalier.types import FinishReason

TOKENIZER = PieceTokenizer()


@dataclass
class Output:
    """An output while it grows.

    Attributes:
        text: all text that there was, also that of tokens which were replaced.
        searched_from: where the first stop may begin that is not passed over.
    """

    asked: EngineRequest
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    searched_from: int = 0

    @property
    def end_ids(self) -> set[int]:
        sampling = self.asked.sampling
        return {*sampling.stop_token_ids, *(() if sampling.ignore_eos else (EOS_ID,))}

    def add(self, token_id: int) -> RequestOutput | None:
        """One more token; the result where it ends the output."""
        sampling = self.asked.sampling
        may_end = len(self.token_ids) >= sampling.min_new_tokens
        self.token_ids.append(token_id)
        whole = text_of(self.token_ids)
        if may_end and token_id in self.end_ids:
            longer = whole if len(whole) > len(self.text) else self.text
            kept = longer if sampling.no_stop_trim else self.text
            return self.ended(kept, FinishReason("stop", matched=token_id))
        known, self.text = self.text, max(self.text, whole, key=len)
        for end in range(len(known) + 1, len(self.text) + 1):
            found = [
                whole[begin:end]
                for begin in range(self.searched_from, end)
                if whole[begin:end] in sampling.stop
                or any(re.fullmatch(regex, whole[begin:end]) for regex in sampling.stop_regex)
            ]
            if found and len(self.token_ids) < sampling.min_new_tokens:
                self.searched_from = end
            elif found:
                stop = max(found, key=len)
                kept = whole[: end if sampling.no_stop_trim else end - len(stop)]
                return self.ended(kept, FinishReason("stop", matched=stop))
        return None

    def ended(self, text: str, reason: FinishReason) -> RequestOutput:
        return RequestOutput(self.asked.request_id, text, self.token_ids, finish_reason=reason)


def text_of(token_ids: list[int]) -> str:
    return "".join(PIECES[token_id] for token_id in token_ids if token_id != EOS_ID)


def naive(asked: EngineRequest) -> RequestOutput | None:
    """The request's result; None where it must fail for want of `min_new_tokens`."""
    assert asked.constraint is not None
    sampling = asked.sampling
    grammar = compiler_of(TOKENIZER, VOCAB_SIZE).compile(asked.constraint)
    guide = Guide(grammar.matcher(), Canonicaliser(TOKENIZER), sampling.max_new_tokens)
    output = Output(asked)
    num_drawn = 0  # random numbers below this position are used up
    added = guide.start().token_ids
    while True:
        for token_id in added:
            result = output.add(token_id)
            if result is not None:
                return result
        count = len(output.token_ids)
        if guide.must_stop:
            is_long_enough = count >= sampling.min_new_tokens
            return output.ended(output.text, FinishReason("stop")) if is_long_enough else None
        if count == sampling.max_new_tokens:
            return output.ended(output.text, FinishReason("length", length=count))
        position = max(num_drawn, len(asked.input_ids) + count)
        num_drawn = position + 1
        chosen = naive_choice(output, guide, position)
        if chosen is None:
            return None
        if chosen in output.end_ids:
            return output.add(chosen)
        change = guide.take(chosen)
        del output.token_ids[count - change.num_removed :]
        added = change.token_ids


def naive_choice(output: Output, guide: Guide, position: int) -> int | None:
    """The token that the model chooses; None where nothing is allowed."""
    asked = output.asked
    sampling, output_ids = asked.sampling, output.token_ids
    banned = {EOS_ID} if sampling.ignore_eos else set()
    if len(output_ids) < sampling.min_new_tokens:
        banned |= output.end_ids
    prompt_ids = list(asked.input_ids)
    row = SampleRow(
        sampling, asked.seed, position, prompt_ids, output_ids.copy(), sorted(banned), guide.mask()
    )
    logits = logits_of(history_hash([*prompt_ids, *output_ids]))
    (sampled,) = ReferenceSampler(VOCAB_SIZE).sample(logits[None], [row])
    return sampled.token_id if isinstance(sampled, SampledToken) else None


def assert_equal_to_naive(found: RequestOutput, asked: EngineRequest) -> None:
    expected = naive(asked)
    assert expected is not None
    assert (found.output_ids, found.text) == (expected.output_ids, expected.text)
    assert found.finish_reason == expected.finish_reason
    if found.text_token_ids is not None:
        assert text_of(found.text_token_ids) == found.text
    if found.output_logprobs is not None:
        tokens = [*asked.input_ids, *found.output_ids]
        entries = found.output_logprobs.tokens
        assert [entry.token_id for entry in entries] == found.output_ids
        for index, entry in enumerate(entries):
            position = len(asked.input_ids) + index
            assert entry.logprob == pytest.approx(naive_logprob(tokens, position), abs=1e-5)
    if found.input_logprobs is not None:
        start = asked.logprob_start_len
        ids = [entry.token_id for entry in found.input_logprobs.tokens]
        assert ids == list(asked.input_ids[start:])
