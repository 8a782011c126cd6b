"""What the llguidance library reports of a matcher that cannot go on, as one line."""

from __future__ import annotations

from llguidance import LLMatcher

DEAD_END = "no text made of this model's tokens matches it"

_MAX_CHARS = 300


def failure(matcher: LLMatcher) -> str:
    """What went wrong in one line, "" if nothing did; DEAD_END where no token may follow."""
    if not matcher.is_error():
        return ""
    lines = [line.strip() for line in matcher.get_error().splitlines()]
    if lines[:1] == ["NoExtensionBias"]:
        return DEAD_END
    told = next((line for line in lines if line.startswith("error:")), lines[0] if lines else "")
    told = told.removeprefix("error:").strip().rstrip(".")
    return told if len(told) <= _MAX_CHARS else f"{told[:_MAX_CHARS]}..."
