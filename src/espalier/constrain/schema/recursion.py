"""Which goals stand inside themselves: the cycles of a schema's goals.

Found by building every goal once with stubs for the values inside; builds no pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from espalier.constrain.schema.node import Goal


def recursive_goals(start: Goal, parts_of: Callable[[Goal], Iterable[Goal]]) -> frozenset[Goal]:
    """Goals on cycles that can be reached; `parts_of` has the goals of the values inside.

    Strongly connected components (Tarjan, 1972), without recursion of its own.
    """
    indices: dict[Goal, int] = {}
    lows: dict[Goal, int] = {}
    stack: list[Goal] = []
    on_stack: set[Goal] = set()
    found: set[Goal] = set()
    trail = [(start, iter(parts_of(start)))]
    indices[start] = lows[start] = 0
    stack.append(start)
    on_stack.add(start)
    while trail:
        goal, parts = trail[-1]
        part = next(parts, None)
        if part is not None:
            if part not in indices:
                indices[part] = lows[part] = len(indices)
                stack.append(part)
                on_stack.add(part)
                trail.append((part, iter(parts_of(part))))
            elif part in on_stack:
                lows[goal] = min(lows[goal], indices[part])
                if part == goal:
                    found.add(goal)
            continue
        trail.pop()
        if trail:
            above = trail[-1][0]
            lows[above] = min(lows[above], lows[goal])
        if lows[goal] == indices[goal]:
            members = stack[stack.index(goal) :]
            del stack[stack.index(goal) :]
            on_stack.difference_update(members)
            if len(members) > 1:
                found.update(members)
    return frozenset(found)
