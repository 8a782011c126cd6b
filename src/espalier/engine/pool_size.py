"""How many token slots an engine has where its user gives no number."""

from __future__ import annotations

MAX_DEFAULT_TOKENS = 65_536  # slots of the KV pool where none are given, and the least of them
MIN_DEFAULT_TOKENS = 2048
_MEMORY_SHARE = 0.25  # of the free memory


def default_pool_size(bytes_per_slot: int, free_bytes: int | None) -> int:
    """Slots that fit into a quarter of the free memory, within bounds; the most where unknown."""
    if free_bytes is None:
        return MAX_DEFAULT_TOKENS
    fitting = int(free_bytes * _MEMORY_SHARE) // bytes_per_slot
    return min(MAX_DEFAULT_TOKENS, max(MIN_DEFAULT_TOKENS, fitting))
