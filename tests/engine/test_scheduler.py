from __future__ import annotations

import random

import pytest
from tests.engine.fakes import (
    executor_of,
    make_core,
    naive_output,
    output,
    request,
    run_to_end,
)

from espalier.engine.options import SchedulePolicy
from espalier.engine.request import EngineEvent, RequestOutput
from espalier.errors import CapacityError

Tokens = tuple[int, ...]


def ended(events: list[EngineEvent]) -> list[str]:
    return [
        event.request_id
        for event in events
        if not isinstance(event, RequestOutput) or event.finish_reason is not None
    ]


# --- order ----------------------------------------------------------------------------------------


def random_leaves(rng: random.Random, max_depth: int) -> list[Tokens]:
    """Root-to-leaf token sequences of a random tree."""
    if max_depth == 0:
        return [()]
    leaves: list[Tokens] = []
    for first in rng.sample(range(16), rng.randint(1, 4)):
        edge = (first, *(rng.randrange(16) for _ in range(rng.randint(0, 5))))
        leaves += [edge + rest for rest in random_leaves(rng, rng.randint(0, max_depth - 1))]
    return leaves


def computed_rows(leaves: list[Tokens], num_slots: int, policy: SchedulePolicy) -> int:
    core = make_core(
        num_slots, schedule_policy=policy, max_running_requests=1, in_flight_sharing=False
    )
    for number, leaf in enumerate(leaves):
        core.add_request(request(f"r{number}", leaf, max_new_tokens=0))
    run_to_end(core)
    return core.stats().totals.computed_rows


@pytest.mark.parametrize("policy", [SchedulePolicy.LPM, SchedulePolicy.DFS_WEIGHT])
@pytest.mark.parametrize("seed", range(12))
def test_tree_order_computes_each_edge_once_at_the_size_of_the_longest_request(
    policy: SchedulePolicy, seed: int
) -> None:
    """Theorem 3.1 of the paper (section 4.4 of the reference)."""
    rng = random.Random(seed)
    leaves = random_leaves(rng, 5)
    rng.shuffle(leaves)
    longest = max(len(leaf) for leaf in leaves)
    edges = {leaf[:end] for leaf in leaves for end in range(1, len(leaf) + 1)}
    assert computed_rows(leaves, longest, policy) == len(edges)


def test_arrival_and_random_order_compute_more_than_tree_order() -> None:
    rng = random.Random(3)
    leaves = [leaf for _ in range(4) for leaf in random_leaves(rng, 6)]
    rng.shuffle(leaves)
    longest = max(len(leaf) for leaf in leaves)
    best = computed_rows(leaves, longest, SchedulePolicy.LPM)
    for policy in (SchedulePolicy.FCFS, SchedulePolicy.RANDOM):
        assert computed_rows(leaves, longest, policy) > 1.2 * best, len(leaves)


def test_fcfs_ends_equal_requests_in_order_of_arrival() -> None:
    core = make_core(schedule_policy="fcfs", max_running_requests=1)
    for number in range(5):
        core.add_request(request(f"r{number}", [number + 1], max_new_tokens=1))
    order: list[str] = []
    while core.has_work:
        order += ended(core.step())
    assert order == [f"r{number}" for number in range(5)]


# --- ageing ---------------------------------------------------------------------------------------


def passed_by(bound: int, num_steps: int) -> list[str] | None:
    """Later arrivals that are served before a request that shares nothing, or None: it starves.

    In each step one request is served and two come that share a cached prefix.
    """
    core = make_core(max_running_requests=1, max_passed_over=bound)
    prefix = [1, 2, 3, 4, 5, 6]
    core.add_request(request("warm", prefix, max_new_tokens=0))
    core.add_request(request("lonely", [9, 9, 9], max_new_tokens=1))
    order: list[str] = []
    for step in range(num_steps):
        order += ended(core.step())
        core.check_invariants()
        if "lonely" in order:
            return [name for name in order if name.startswith("later")]
        for number in range(2):
            asked = request(f"later{step}.{number}", [*prefix, step % 16], max_new_tokens=1)
            core.add_request(asked)
    return None


@pytest.mark.parametrize("bound", [0, 1, 5, 20])
def test_a_request_is_passed_over_as_often_as_the_bound_and_no_more(bound: int) -> None:
    passed = passed_by(bound, 200)
    assert passed is not None
    assert len(passed) == bound


def test_without_ageing_a_request_starves() -> None:
    assert passed_by(1_000_000, 200) is None


def test_an_aged_request_that_does_not_fit_keeps_others_from_its_slots() -> None:
    """Small requests always fit beside each other; the large one needs nearly the whole pool."""

    def steps(bound: int) -> int | None:
        core = make_core(64, max_passed_over=bound, decode_reserve_tokens=0)
        for number in range(3):
            core.add_request(request(f"first{number}", [number + 1] * 12, max_new_tokens=8))
        core.step()
        core.add_request(request("large", [9] * 50, max_new_tokens=8, ignore_eos=True))
        for step in range(300):
            core.add_request(
                request(f"s{step}", [step % 16] * 5, max_new_tokens=12, ignore_eos=True)
            )
            if "large" in ended(core.step()):
                return step
            core.check_invariants()
        return None

    assert steps(1_000_000) is None
    done = steps(10)
    assert done is not None
    assert done < 60


def test_requests_of_one_moment_are_ordered_freely_and_age_nobody() -> None:
    core = make_core(max_running_requests=1, max_passed_over=0)
    prefix = [1, 2, 3]
    core.add_request(request("warm", prefix, max_new_tokens=0))
    run_to_end(core)
    core.add_request(request("lonely", [9, 9], max_new_tokens=1))
    for number in range(5):
        core.add_request(request(f"s{number}", [*prefix, number], max_new_tokens=1))
    order: list[str] = []
    while core.has_work:
        order += ended(core.step())
    # With a bound of 0 every request is aged from the start: arrival order.
    assert order[0] == "lonely"
    core = make_core(max_running_requests=1, max_passed_over=1)
    core.add_request(request("warm", prefix, max_new_tokens=0))
    run_to_end(core)
    core.add_request(request("lonely", [9, 9], max_new_tokens=1))
    for number in range(5):
        core.add_request(request(f"s{number}", [*prefix, number], max_new_tokens=1))
    order = []
    while core.has_work:
        order += ended(core.step())
    assert order[-1] == "lonely"


# --- waiting for a prefix in flight ---------------------------------------------------------------


def test_followers_start_with_the_chunk_that_holds_their_prefix() -> None:
    core = make_core(1024, chunk_tokens=8)
    leader = [(3 * i) % 16 for i in range(80)]
    core.add_request(request("leader", leader))
    core.add_request(request("follower", [*leader[:10], 1, 2, 3]))
    for _ in range(3):
        core.step()
    stats = core.stats()
    assert (stats.running, stats.waiting) == (1, 1) or stats.running == 2
    got = output(run_to_end(core), "follower")
    assert got.cached_tokens == 10


@pytest.mark.parametrize("end", ["cancel", "fail"])
def test_followers_go_on_when_their_leader_ends_early(end: str) -> None:
    core = make_core(1024, chunk_tokens=8)
    prompt = [(5 * i) % 16 for i in range(80)]
    for name in ("leader", "one", "two"):
        core.add_request(request(name, prompt))
    core.step()
    core.step()
    assert core.stats().waiting == 2
    if end == "cancel":
        core.cancel("leader")
    else:
        executor_of(core).fail_at = {2}
    events = run_to_end(core)
    for name in ("one", "two"):
        assert output(events, name).output_ids == naive_output(request(name, prompt)).output_ids
    assert output(events, "one").cached_tokens == 16  # what the leader had finished
    assert output(events, "two").cached_tokens == 79


def test_an_aged_follower_waits_on_for_its_leader() -> None:
    # The leader's prompt is scored a few rows a step, so others are admitted all the while.
    core = make_core(1024, chunk_tokens=64, prompt_logit_rows=4, max_passed_over=2)
    prompt = [(5 * i) % 16 for i in range(60)]
    scored = {"return_logprob": True, "logprob_start_len": 0}
    core.add_request(request("leader", prompt, max_new_tokens=1, **scored))  # type: ignore[arg-type]
    core.add_request(request("follower", prompt, max_new_tokens=1))
    events = {}
    for number in range(10):
        events.update({event.request_id: event for event in core.step()})
        core.add_request(request(f"other{number}", [number + 1, 1], max_new_tokens=1))
    assert len(events) > 2  # the follower is passed over more often than the bound
    assert "follower" not in events
    got = output(run_to_end(core), "follower")
    assert got.cached_tokens == 59
    assert core.stats().totals.computed_rows == 60 + 1 + 10 * 2


# --- limits ---------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_says_how_many_wait() -> None:
    core = make_core(max_running_requests=2, max_waiting_requests=3)
    for number in range(5):
        core.add_request(request(f"r{number}", [number + 1]))
    with pytest.raises(CapacityError, match=r"5 requests are waiting and 0 run; the queue takes 3"):
        core.add_request(request("r5", [1]))
    core.step()
    with pytest.raises(CapacityError, match="3 requests are waiting and 2 run"):
        core.add_request(request("r5", [1]))
    assert len(run_to_end(core)) == 5


@pytest.mark.parametrize("chunk_tokens", [3, 64])
@pytest.mark.parametrize("seed", range(4))
def test_requests_that_do_not_grow_are_never_retracted(chunk_tokens: int, seed: int) -> None:
    """Admission promises slots only once, also those of cached tokens that it locks."""
    core = make_core(100, chunk_tokens=chunk_tokens)
    rng = random.Random(seed)
    for number in range(60):
        prompt = [rng.randrange(3) for _ in range(rng.randint(10, 40))]
        core.add_request(request(f"r{number}", prompt, max_new_tokens=rng.randint(0, 1)))
        if rng.random() < 0.3:
            core.step()
            core.check_invariants()
    assert len(run_to_end(core)) > 0
    totals = core.stats().totals
    assert (totals.requests_finished, totals.retractions) == (60, 0)


def test_cached_tokens_that_admission_locks_are_not_promised_to_others() -> None:
    core = make_core(20, schedule_policy="fcfs")
    prefix = list(range(10))
    core.add_request(request("warm", prefix, max_new_tokens=0))
    run_to_end(core)
    core.add_request(request("first", [15] * 8, max_new_tokens=0))
    core.add_request(request("second", [*prefix, 11, 12, 13, 14, 15], max_new_tokens=0))
    events = run_to_end(core)
    # Side by side they would need 8 + 5 slots, and the pool has 10 beside the prefix.
    assert output(events, "second").retractions == output(events, "first").retractions == 0


def test_a_step_never_has_more_rows_than_the_options_say() -> None:
    core = make_core(512, chunk_tokens=16, max_running_requests=4)
    rng = random.Random(1)
    for number in range(30):
        prompt = [rng.randrange(16) for _ in range(rng.randint(1, 60))]
        core.add_request(request(f"r{number}", prompt))
    run_to_end(core)
    assert max(executor_of(core).step_rows) <= core.options.max_step_rows == 20


def test_decode_rows_go_on_in_every_step_of_a_long_prefill() -> None:
    core = make_core(1024, chunk_tokens=8)
    core.add_request(request("decoding", [1, 2], max_new_tokens=40, ignore_eos=True), True)
    core.step()
    core.add_request(request("long", [(7 * i) % 16 for i in range(160)]))
    for _ in range(15):
        assert "decoding" in [event.request_id for event in core.step()]
    assert max(executor_of(core).step_rows) == 9
