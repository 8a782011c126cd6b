"""Constrained outputs on the hash model: forced tokens, healing, rollback, logprobs, preemption.

The oracle asks the model's definition for every token in turn, with no cache and no batch.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engine.constrained_oracle import TOKENIZER, assert_equal_to_naive, naive
from tests.engine.fakes import (
    EOS_ID,
    VOCAB_SIZE,
    HashExecutor,
    event_id,
    executor_of,
    failure,
    output,
    request,
    run_to_end,
)
from tests.engine.piece_tokenizer import PIECES

from espalier.constraint import Constraint, ConstraintKind
from espalier.engine.engine import EngineCore
from espalier.engine.options import EngineOptions
from espalier.engine.request import EngineEvent, EngineRequest, RequestFailure, RequestOutput
from espalier.engine.sampler import Sampler
from espalier.engine.sampler_reference import ReferenceSampler
from espalier.errors import BackendError, RequestCancelledError, SamplingError
from espalier.types import FinishReason

REGEXES = (
    r"\{ab[ab]{1,3},(cd|de)ee\}",
    r"\{a(b|c)*,abcd\},\{a[de]{2}\}",
    r"(abc,|abd,){1,3}ee",
    r"abcdabcd",
    r"[a-e]{0,4}\},abc[a-e]{0,4}",
    r"(ab(cd)?,)*e{1,5}",
    r"a?bcdeee\}(,\{a)*",
    r"[a-e]{1,6}",
)
FORMS = (
    *((ConstraintKind.REGEX, pattern) for pattern in REGEXES),
    (ConstraintKind.EBNF, 'root ::= "{" item "}"\nitem ::= "ab" | "{a" item "},d" | "cd"'),
    (ConstraintKind.EBNF, 'root ::= "abc" [a-e]* "},"'),
)


STOPS: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...] = (
    ((), ()),
    ((), ()),
    (("ab",), ()),
    (("d", "},{"), ()),
    ((), (2,)),
    ((), (9, 10, 14)),
    (("bc",), (10, 14)),
)


STOP_REGEX: tuple[tuple[str, ...], ...] = ((), (), ("[ab]c",), ("c.?}", "e{2,3}d"))


def regex(pattern: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, pattern)


def make_core(num_slots: int = 256, *, is_native: bool = False, **options: object) -> EngineCore:
    values: dict[str, object] = {"num_slots": num_slots, "context_length": 4096, **options}
    chosen = EngineOptions(**values)  # type: ignore[arg-type]
    executor = HashExecutor(num_slots, chosen.max_step_rows)
    sampler = Sampler(VOCAB_SIZE) if is_native else ReferenceSampler(VOCAB_SIZE)
    return EngineCore(executor, TOKENIZER, sampler, chosen)


def constrained(name: str, prompt: list[int], pattern: str, **values: object) -> EngineRequest:
    asked = request(name, prompt, **{"max_new_tokens": 24, **values})  # type: ignore[arg-type]
    return replace(asked, constraint=regex(pattern))


@st.composite
def requests(draw: st.DrawFn) -> EngineRequest:
    prompt = draw(st.lists(st.integers(1, 3), min_size=1, max_size=10))
    start = draw(st.sampled_from([-2, -2, -1, 0, len(prompt)]))
    max_new_tokens = draw(st.integers(1, 20))
    stops, stop_token_ids = draw(st.sampled_from(STOPS))
    asked = constrained(
        "",
        prompt,
        "",
        temperature=draw(st.sampled_from([0.0, 1.0])),
        max_new_tokens=max_new_tokens,
        min_new_tokens=min(max_new_tokens, draw(st.sampled_from([0, 0, 2, 5]))),
        ignore_eos=draw(st.booleans()),
        stop=stops,
        stop_token_ids=stop_token_ids,
        stop_regex=draw(st.sampled_from(STOP_REGEX)),
        no_stop_trim=draw(st.booleans()),
        frequency_penalty=draw(st.sampled_from([0.0, 0.0, 1.0])),
        logit_bias=draw(st.sampled_from([{}, {}, {EOS_ID: 3.0}, {0: -3.0, 12: -float("inf")}])),
        seed=draw(st.integers(0, 5)),
        return_logprob=start >= -1,
        logprob_start_len=max(start, -1),
        namespace=draw(st.sampled_from(["", "", "other"])),
    )
    return replace(asked, constraint=Constraint(*draw(st.sampled_from(FORMS))))


def options(draw: st.DrawFn) -> dict[str, object]:
    return {
        "num_slots": draw(st.sampled_from([36, 48, 200])),
        "chunk_tokens": draw(st.sampled_from([3, 16])),
        "prompt_logit_rows": 3,
        "prefix_cache": draw(st.sampled_from([True, True, True, False])),
        "in_flight_sharing": draw(st.booleans()),
        "is_native": draw(st.booleans()),
    }


SETTINGS = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@SETTINGS
@given(st.lists(requests(), min_size=1, max_size=8), st.data())
def test_every_output_is_the_naive_one_however_it_is_computed(
    asked: list[EngineRequest], data: st.DataObject
) -> None:
    named = [replace(one, request_id=str(index)) for index, one in enumerate(asked)]
    chosen = data.draw(st.composite(options)())
    counts_by_mode = []
    for jumps in (True, False):
        core = make_core(jump_forward=jumps, **chosen)  # type: ignore[arg-type]
        events = run_all(core, named)
        counts_by_mode.append(check(events, named))
        # What is cached of these serves others: prompts that go on where they ended.
        later = [
            replace(one, request_id=f"after {one.request_id}", input_ids=longer)
            for one in named
            if (longer := longer_prompt(events, one)) is not None
        ]
        check(run_all(core, later), later)
        assert core.stats().slots_locked == 0
    assert counts_by_mode[0] == counts_by_mode[1]


def run_all(core: EngineCore, asked: list[EngineRequest]) -> dict[str, EngineEvent]:
    refused: dict[str, EngineEvent] = {}
    for one in asked:
        try:
            core.add_request(one)
        except SamplingError as error:  # noqa: PERF203
            refused[one.request_id] = RequestFailure(one.request_id, error)
    return {**run_to_end(core, 2000), **refused}


def check(events: dict[str, EngineEvent], asked: list[EngineRequest]) -> list[int | None]:
    """All that ran to their end are as they must be; how many of their tokens were forced."""
    counts: list[int | None] = []
    for one in asked:
        event = events[one.request_id]
        if isinstance(event, RequestFailure):
            assert isinstance(event.error, SamplingError)
            assert naive(one) is None
            counts.append(None)
        else:
            assert_equal_to_naive(event, one)
            counts.append(event.forced_tokens)
    return counts


def longer_prompt(events: dict[str, EngineEvent], asked: EngineRequest) -> tuple[int, ...] | None:
    event = events[asked.request_id]
    if not isinstance(event, RequestOutput) or asked.logprob_start_len > 0:
        return None
    kept = [token_id for token_id in event.output_ids if token_id != EOS_ID]
    longer = (*asked.input_ids, *kept, 5)
    return longer if len(longer) + asked.sampling.max_new_tokens <= 36 else None


def test_forced_tokens_take_one_step_together_and_one_by_one_without_jumps() -> None:
    asked = constrained("x", [1, 2], r"abcdabcd[ab]{3}ee\}", temperature=1.0, seed=3)
    steps = {}
    for jumps in (True, False):
        core = make_core(jump_forward=jumps)
        core.add_request(asked)
        found = output(run_to_end(core), "x")
        assert re.fullmatch(r"abcdabcd[ab]{3}ee\}", found.text)
        assert found.forced_tokens > 4
        executor = core.executor
        assert isinstance(executor, HashExecutor)
        steps[jumps] = executor.num_steps
        assert core.stats().totals.forced_tokens == found.forced_tokens
    assert steps[False] >= steps[True] + 4


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(REGEXES), st.integers(0, 10_000), st.integers(1, 40))
def test_forced_spans_say_which_tokens_were_forced(pattern: str, seed: int, most: int) -> None:
    found = {}
    for jumps in (True, False):
        core = make_core(jump_forward=jumps)
        core.add_request(
            constrained("x", [1], pattern, temperature=1.0, seed=seed, max_new_tokens=most)
        )
        found[jumps] = output(run_to_end(core), "x")
        spans = found[jumps].forced_spans
        edges = [edge for span in spans for edge in span]
        assert edges == sorted(edges)
        assert all(0 <= start < end <= len(found[jumps].output_ids) for start, end in spans)
        assert sum(end - start for start, end in spans) == found[jumps].forced_tokens
    assert found[True].forced_spans == found[False].forced_spans


def test_an_output_that_is_all_forced_needs_its_prompt_only() -> None:
    core = make_core()
    core.add_request(constrained("x", [1, 2, 3], "abcdabcd"))
    found = output(run_to_end(core), "x")
    assert found.text == "abcdabcd"
    assert found.finish_reason == FinishReason("stop")
    assert found.forced_tokens == len(found.output_ids) == 4
    executor = core.executor
    assert isinstance(executor, HashExecutor)
    assert executor.num_steps == 1
    assert executor.step_logit_rows == [0]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(REGEXES), st.integers(0, 10_000))
def test_tokens_of_whole_outputs_are_those_of_their_text(pattern: str, seed: int) -> None:
    core = make_core()
    core.add_request(constrained("x", [1], pattern, temperature=1.0, seed=seed, max_new_tokens=60))
    found = output(run_to_end(core), "x")
    assert found.finish_reason is not None
    if found.finish_reason.type == "stop":
        assert re.fullmatch(pattern, found.text)
        ids = [token_id for token_id in found.output_ids if token_id != EOS_ID]
        assert ids == TOKENIZER.encode(found.text)
        assert found.text_token_ids == ids


def test_without_canonical_tokens_nothing_is_forced_and_the_text_still_matches() -> None:
    core = make_core(canonical=False)
    for seed in range(20):
        core.add_request(
            constrained(str(seed), [1], REGEXES[0], temperature=1.0, seed=seed, max_new_tokens=60)
        )
    events = run_to_end(core)
    for seed in range(20):
        found = output(events, str(seed))
        assert re.fullmatch(REGEXES[0], found.text)
        assert found.forced_tokens == 0


@pytest.mark.parametrize("num_prompt", [1, 2])
def test_a_form_without_text_gives_an_empty_output(num_prompt: int) -> None:
    core = make_core()
    core.add_request(constrained("x", [1] * num_prompt, "", return_logprob=True))
    found = output(run_to_end(core, 10), "x")
    assert (found.text, found.output_ids) == ("", [])
    assert found.finish_reason == FinishReason("stop")


def test_tokens_that_were_replaced_at_the_end_are_not_cached() -> None:
    core = make_core()
    core.add_request(only("x", [3, 2], "ab", "[ab]{2}"))
    found = output(run_to_end(core), "x")
    assert found.output_ids == [PIECES.index("ab")]
    later = request("y", [3, 2, *found.output_ids, 4])
    core.add_request(later)
    # The hash model fails on rows that were computed with other tokens.
    assert output(run_to_end(core), "y").cached_tokens == 2


def only(
    name: str, prompt: list[int], pieces: str, pattern: str, **values: object
) -> EngineRequest:
    """A request of which the model chooses these pieces alone."""
    bias = {PIECES.index(piece): 100.0 for piece in pieces}
    return constrained(name, prompt, pattern, logit_bias=bias, **values)


def test_an_output_that_gets_shorter_right_after_a_retraction_ends() -> None:
    core = make_core(7, decode_reserve_tokens=0)
    core.add_request(request("long", [4, 5, 6, 7], max_new_tokens=4, ignore_eos=True))
    core.add_request(only("x", [3, 2], "ab", "[ab]{2}", return_logprob=True, max_new_tokens=5))
    found = output(run_to_end(core, 50), "x")
    assert found.retractions == 1
    assert found.output_ids == [PIECES.index("ab")]
    assert found.output_logprobs is not None
    assert len(found.output_logprobs.tokens) == 1


@pytest.mark.parametrize("jumps", [True, False])
def test_a_stop_token_ends_an_output_also_where_it_is_forced_or_healed(jumps: bool) -> None:
    core = make_core(jump_forward=jumps)
    stops = (PIECES.index("cd"), PIECES.index("ee"))
    core.add_request(constrained("forced", [1], "abcdab[ab]", stop_token_ids=stops))
    core.add_request(only("healed", [1], "e", "e{4}d", stop_token_ids=stops))
    core.add_request(
        constrained("later", [1], "abcdabcd[ab]", stop_token_ids=stops, min_new_tokens=2)
    )
    events = run_to_end(core)
    assert output(events, "forced").text == "ab"
    assert output(events, "forced").finish_reason == FinishReason("stop", matched=stops[0])
    assert output(events, "healed").output_ids == [stops[1]]
    assert output(events, "later").text == "abcdab"


@pytest.mark.parametrize("jumps", [True, False])
def test_bias_and_penalties_do_not_touch_forced_tokens(jumps: bool) -> None:
    core = make_core(jump_forward=jumps)
    bias = {token_id: -float("inf") for token_id in range(VOCAB_SIZE)}
    core.add_request(constrained("x", [1], "abcdabcd", logit_bias=bias, presence_penalty=2.0))
    assert output(run_to_end(core), "x").text == "abcdabcd"


def test_ends_of_text_that_are_ignored_do_not_end_a_form_that_may_go_on() -> None:
    core = make_core()
    core.add_request(
        constrained(
            "x", [1], "(ab)*", ignore_eos=True, max_new_tokens=9, logit_bias={EOS_ID: 100.0}
        )
    )
    found = output(run_to_end(core), "x")
    assert EOS_ID not in found.output_ids
    assert found.finish_reason == FinishReason("length", length=9)


def test_each_choice_has_a_random_number_of_its_own() -> None:
    """Also where tokens merged, so that the next choice is for a position that had one."""
    core = make_core()
    sampler = core._sampler
    positions: list[int] = []

    class Watching(ReferenceSampler):
        def sample(self, logits, rows):  # type: ignore[no-untyped-def]
            positions.extend(row.position for row in rows)
            return sampler.sample(logits, rows)

    core._sampler = Watching(VOCAB_SIZE)
    core.add_request(only("x", [3, 2], "e", "e{8}", temperature=1.0))
    assert output(run_to_end(core), "x").text == "e" * 8
    assert positions == sorted(set(positions))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(requests(), min_size=2, max_size=6),
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), max_size=3),
    st.sets(st.integers(0, 15), max_size=2),
    st.booleans(),
)
def test_cancelled_and_failed_steps_leave_the_others_as_they_are(
    asked: list[EngineRequest], cancelled: list[tuple[int, int]], fail_at: set[int], jumps: bool
) -> None:
    core = make_core(48, chunk_tokens=5, prompt_logit_rows=3, jump_forward=jumps)
    executor_of(core).fail_at = fail_at
    named = [replace(one, request_id=str(index)) for index, one in enumerate(asked)]
    events: dict[str, EngineEvent] = {}
    for one in named:
        try:
            core.add_request(one)
        except SamplingError:  # noqa: PERF203
            assert naive(one) is None
    for step in range(2000):
        for when, index in cancelled:
            if when == step:
                core.cancel(str(index))
        if not core.has_work:
            break
        for event in core.step():
            events[event_id(event)] = event
        core.check_invariants()
    assert not core.has_work
    for one in named:
        last = events.get(one.request_id)
        if isinstance(last, RequestOutput):
            assert_equal_to_naive(last, one)
        elif last is not None:
            error = failure(events, one.request_id).error
            assert isinstance(error, (BackendError, RequestCancelledError, SamplingError))
    assert core.stats().slots_locked == 0


def test_cached_tokens_are_tokens_of_the_prompt_also_where_forced_ones_are_cached() -> None:
    core = make_core()
    for name in ("first", "second"):
        core.add_request(constrained(name, [1, 2], r"abcdabcd[ab]{3}ee\}"))
        found = output(run_to_end(core), name)
    assert found.cached_tokens == found.prompt_tokens == 2
    assert core.stats().totals.cached_tokens == 2
