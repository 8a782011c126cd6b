"""In which order waiting requests are looked at: the schedule policies.

Pure functions of the requests' places in the tree. Budgets and memory are the scheduler's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from espalier.engine.options import SchedulePolicy
from espalier.engine.radix_node import RadixNode
from espalier.engine.request_state import RequestState

Peek = Callable[[RequestState], int]


def admission_order(
    policy: SchedulePolicy,
    waiting: Sequence[RequestState],
    max_passed_over: int,
    peek: Peek,
    rng: random.Random,
) -> list[RequestState]:
    """The waiting requests (given by arrival) in order of admission.

    Requests that were passed over `max_passed_over` times come first, by arrival, under every
    policy (paper section 4.4 leaves fairness open).
    """
    aged = [state for state in waiting if state.num_passed_over >= max_passed_over]
    if policy is SchedulePolicy.FCFS:
        return list(waiting)
    rest = [state for state in waiting if state.num_passed_over < max_passed_over]
    if policy is SchedulePolicy.LPM:
        lengths = {state: peek(state) for state in rest}
        rest.sort(key=lambda state: -lengths[state])  # stable: ties by arrival
    elif policy is SchedulePolicy.DFS_WEIGHT:
        for state in rest:
            peek(state)
        rest = _depth_first(rest)
    else:
        rng.shuffle(rest)
    return aged + rest


def _depth_first(waiting: Sequence[RequestState]) -> list[RequestState]:
    """Depth first through the tree; of siblings, the one above most waiting requests first."""
    members: dict[RadixNode | None, list[RequestState]] = {}
    weights: dict[RadixNode | None, int] = {}
    children: dict[RadixNode | None, list[RadixNode]] = {}
    for state in waiting:
        node = _deepest(state)
        members.setdefault(node, []).append(state)
        while node is not None:
            if node not in weights:
                children.setdefault(node.parent, []).append(node)
            weights[node] = weights.get(node, 0) + 1
            node = node.parent
    order: list[RequestState] = []
    pending: list[tuple[RadixNode | None, bool]] = [(None, False)]
    while pending:
        node, is_done_below = pending.pop()
        if is_done_below:
            # Those that match a part of an edge only diverge above its end: deepest first.
            order += sorted(members.get(node, []), key=_num_unmatched)
            continue
        pending.append((node, True))
        below = sorted(children.get(node, []), key=lambda child: (weights[child], -child.serial))
        pending += [(child, False) for child in below]
    return order


def _num_unmatched(state: RequestState) -> int:
    return -state.cursor.num_matched if state.cursor is not None else 0


def _deepest(state: RequestState) -> RadixNode | None:
    cursor = state.cursor
    if cursor is None:
        return None
    return cursor.partial or cursor.node
