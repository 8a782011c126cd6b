"""The native automaton against its naive twin, and its limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.constrain.pattern_strategies import COMPLETE, TINY, TinyTokenizer, patterns

from espalier.constrain.automaton import AutomatonGrammar
from espalier.constrain.automaton_reference import ReferenceMatcher
from espalier.constrain.matcher import Matcher
from espalier.constrain.pattern import Pattern
from espalier.errors import CapacityError, UserInputError


def allowed(matcher: Matcher) -> set[int]:
    words = matcher.mask()
    assert words.dtype == np.uint32
    return {
        32 * word + bit for word in range(len(words)) for bit in range(32) if words[word] >> bit & 1
    }


def check_state(matcher: Matcher, twin: ReferenceMatcher) -> None:
    expected = twin.mask()
    if not expected.any() and not twin.must_stop:
        with pytest.raises(UserInputError, match="cannot go on"):
            matcher.mask()
        return
    np.testing.assert_array_equal(matcher.mask(), expected)
    assert not matcher.mask().flags.writeable
    assert matcher.is_complete == twin.is_complete
    assert matcher.must_stop == twin.must_stop
    assert matcher.forced_bytes() == twin.forced_bytes()
    ids = [i for i in range(32 * len(expected)) if expected[i // 32] >> (i % 32) & 1]
    assert matcher.num_allowed == len(ids)
    assert matcher.allowed_ids().tolist() == ids


@pytest.mark.parametrize("tokenizer", [TINY, COMPLETE], ids=["tiny", "complete"])
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(pattern=patterns(), choices=st.lists(st.integers(0, 10_000), max_size=6))
def test_everything_equals_the_naive_twins(
    tokenizer: TinyTokenizer, pattern: Pattern, choices: list[int]
) -> None:
    try:
        twin = ReferenceMatcher(pattern, tokenizer)
        is_contradiction = not twin.can_end_in_tokens()
    except UserInputError:
        is_contradiction = True
    except CapacityError:
        assume(False)
    if is_contradiction:
        with pytest.raises(UserInputError, match="no text made of this model's tokens"):
            AutomatonGrammar(pattern, tokenizer)
        return
    matcher = AutomatonGrammar(pattern, tokenizer).matcher()
    check_state(matcher, twin)
    for choice in choices:
        follow(matcher, twin, choice, tokenizer)
        check_state(matcher, twin)


def follow(matcher: Matcher, twin: ReferenceMatcher, choice: int, tokenizer: TinyTokenizer) -> None:
    """Goes on by an allowed token, or back where there is none or the choice says so."""
    ids = sorted(allowed(twin))
    if twin.num_accepted and (not ids or choice % 5 == 0):
        num_tokens = 1 + choice % twin.num_accepted
        matcher.rollback(num_tokens)
        twin.rollback(num_tokens)
        return
    refused = sorted(set(range(-1, tokenizer.vocab_size + 2)) - set(ids))
    with pytest.raises(UserInputError, match="may not follow"):
        matcher.accept(refused[choice % len(refused)])
    if ids:
        token_id = ids[choice % len(ids)]
        matcher.accept(token_id)
        twin.accept(token_id)
