"""How an engine schedules and what its limits are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from espalier.errors import UserInputError


class SchedulePolicy(str, Enum):
    """In what order waiting requests are admitted; "lpm" is the one to use, others are ablations.

    LPM: longest cached prefix first (paper section 4.3). DFS_WEIGHT: depth first through the
    radix tree, the subtree with most waiting requests first. FCFS: by arrival. RANDOM: shuffled.
    """

    LPM = "lpm"
    DFS_WEIGHT = "dfs-weight"
    FCFS = "fcfs"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Limits and policies of one engine. Raises UserInputError on a value that makes no sense.

    Attributes:
        num_slots: token slots of the KV pool; cached and running tokens share them.
        context_length: most tokens of one sequence, prompt and output together.
        max_running_requests: sequences that run at a time.
        max_waiting_requests: sequences that wait; one more is refused with CapacityError.
        chunk_tokens: prompt tokens that are computed in one step, over all sequences.
        prompt_logit_rows: prompt positions whose logprobs are computed in one step.
        schedule_policy: order of admission, a SchedulePolicy or its value.
        max_passed_over: admissions of later arrivals after which a waiting request goes first.
        decode_reserve_tokens: slots that admission leaves to the near future of each sequence.
        min_shared_gain: cached tokens that a request must gain to wait for one being computed.
        prefix_cache: False computes every prompt anew (ablation).
        in_flight_sharing: False lets equal prefixes be computed side by side (ablation).
        jump_forward: False computes forced tokens one by one (ablation); tokens are the same.
        canonical: False leaves tokens of constrained outputs as they were chosen and forces none,
            so that masks are all there is (ablation); tokens may differ.
        random_seed: for the "random" policy.
    """

    num_slots: int
    context_length: int
    max_running_requests: int = 64
    max_waiting_requests: int = 4096
    chunk_tokens: int = 512
    prompt_logit_rows: int = 256
    schedule_policy: SchedulePolicy = SchedulePolicy.LPM
    max_passed_over: int = 256
    decode_reserve_tokens: int = 16
    min_shared_gain: int = 2
    prefix_cache: bool = True
    in_flight_sharing: bool = True
    jump_forward: bool = True
    canonical: bool = True
    random_seed: int = 0

    def __post_init__(self) -> None:
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
                raise UserInputError(
                    f"{name} is {value!r}; a whole number of at least {lowest} is allowed."
                )
        try:
            policy = SchedulePolicy(self.schedule_policy)
        except ValueError:
            allowed = ", ".join(item.value for item in SchedulePolicy)
            raise UserInputError(
                f"schedule_policy is {self.schedule_policy!r}; allowed are {allowed}."
            ) from None
        object.__setattr__(self, "schedule_policy", policy)

    @property
    def max_step_rows(self) -> int:
        """Most token rows that one step can have; an executor must take as many."""
        return self.max_running_requests + self.chunk_tokens


_LOWEST = {
    "num_slots": 1,
    "context_length": 1,
    "max_running_requests": 1,
    "max_waiting_requests": 0,
    "chunk_tokens": 1,
    "prompt_logit_rows": 1,
    "max_passed_over": 0,
    "decode_reserve_tokens": 0,
    "min_shared_gain": 1,
    "random_seed": 0,
}
