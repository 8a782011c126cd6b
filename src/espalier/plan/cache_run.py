"""A cache of a given size, run over the requests of a plan: what each finds in it.

Does what the engine's RadixCache and KvSpace do for requests that come one after the other (paper
section 4.1: least recently used leaf tails go first, a running request's path is locked), on a
tree that is known to its end, so that no node is split or made. It must not know programs.
"""

from __future__ import annotations

import heapq

from espalier.plan.prefix_tree import PrefixNode


class CacheRun:
    """Serves sequences in order. `capacity` is in tokens; None: nothing is ever evicted.

    Uses the nodes' `held`, `last_used` and lock fields, so that a tree has one run at a time.
    """

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._num_held = 0
        self._clock = 0
        self._queue: list[tuple[int, int, PrefixNode]] = []
        self.num_evicted = 0

    def serve(self, prompt: PrefixNode, limit: int, output: PrefixNode | None = None) -> int:
        """Computes a prompt and what follows it; how many of its tokens were in the cache.

        At most `limit` leading tokens are taken from the cache. `prompt` is the last node of the
        prompt, `output` that of the prompt with what was generated after it.
        """
        path = prompt.path()
        num_matched = self._matched(path, limit)
        locked = [node for node in path if node.start < num_matched]
        self._lock(locked)
        self._make_room(prompt.end - num_matched)
        self._hold(path)
        if output is not None and output is not prompt:
            more = [node for node in output.path() if node.start >= prompt.end]
            self._lock(path[len(locked) :])
            self._make_room(output.end - prompt.end)
            self._hold([*path, *more])
            self._unlock(path[len(locked) :])
        self._unlock(locked)
        return num_matched

    def _matched(self, path: list[PrefixNode], limit: int) -> int:
        self._clock += 1
        count = 0
        for node in path:
            if count >= limit or node.held == 0:
                break
            node.last_used = self._clock
            count += node.held
            if node.held < len(node.ids):
                break
        return min(count, limit)

    def _lock(self, nodes: list[PrefixNode]) -> None:
        for node in nodes:
            node.num_locks += 1

    def _unlock(self, nodes: list[PrefixNode]) -> None:
        for node in nodes:
            node.num_locks -= 1
        if nodes:
            self._offer(nodes[-1])

    def _hold(self, path: list[PrefixNode]) -> None:
        self._clock += 1
        for node in path:
            node.last_used = self._clock
            missing = len(node.ids) - node.held
            if missing:
                if node.held == 0 and node.parent is not None:
                    node.parent.num_held_children += 1
                node.held = len(node.ids)
                self._num_held += missing
        if path:
            self._offer(path[-1])

    def _offer(self, node: PrefixNode) -> None:
        if self._capacity is not None and node.held and not node.num_held_children:
            heapq.heappush(self._queue, (node.last_used, node.serial, node))

    def _make_room(self, count: int) -> None:
        if self._capacity is None:
            return
        missing = count - (self._capacity - self._num_held)
        skipped = []
        while missing > 0 and self._queue:
            entry = heapq.heappop(self._queue)
            used, _, node = entry
            if not node.held or node.num_held_children or used != node.last_used:
                if node.held and not node.num_held_children:
                    self._offer(node)
                continue
            if node.num_locks:
                skipped.append(entry)
                continue
            taken = min(missing, node.held)
            self._trim(node, taken)
            missing -= taken
        for entry in skipped:
            heapq.heappush(self._queue, entry)

    def _trim(self, node: PrefixNode, count: int) -> None:
        node.held -= count
        self._num_held -= count
        self.num_evicted += count
        if node.held:
            self._offer(node)
            return
        parent = node.parent
        assert parent is not None
        parent.num_held_children -= 1
        if parent.parent is not None:
            self._offer(parent)
