"""What a user may have meant by a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable


def hint(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, or nothing."""
    import difflib

    near = difflib.get_close_matches(name, sorted(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""
