"""What is told of one call: in a tooltip, and in a row of a table."""

from __future__ import annotations

import linecache

from espalier.report.figures import counted, place, seconds
from espalier.report.record import CANCELLED, DONE, FAILED, WAITING, CallRecord

_MAX_SOURCE = 100


def call_name(call: CallRecord) -> str:
    """ "gen 'city'", "gen", "shared prefix"."""
    return call.kind if call.variable is None else f"{call.kind} '{call.variable}'"


def call_tip(call: CallRecord) -> str:
    """Everything that is known of a call in numbers, a line each."""
    lines = [call_name(call)]
    if call.location is not None:
        source = source_line(call.location)
        lines.append(f"{place(call.location)}  {source}".rstrip())
    lines += _times(call)
    usage = call.usage
    if usage is not None:
        lines.append(
            f"prompt {usage.prompt_tokens:,} tokens: {usage.cached_tokens:,} cached, "
            f"{usage.computed_tokens:,} computed"
        )
    if usage is not None and usage.generated_tokens:
        forced = f", {usage.forced_tokens:,} forced" if usage.forced_tokens else ""
        samples = f" in {call.num_samples} samples" if call.num_samples > 1 else ""
        end = f", ended by {call.finish}" if call.finish else ""
        lines.append(f"generated {counted(usage.generated_tokens, 'token')}{samples}{forced}{end}")
    lines += [f"{score:.3f}  {choice}" for choice, score in ranked(call)[:8]]
    if call.error is not None:
        lines.append(call.error)
    return "\n".join(lines)


def _times(call: CallRecord) -> list[str]:
    if call.status == WAITING:
        return ["its turn had not come"]
    if call.status in (FAILED, CANCELLED) and call.sent_at is None:
        return ["not sent to the model"]
    if call.sent_at is None:
        return ["waiting for the model"]
    if call.ended_at is None:
        return ["had not ended"]
    parts = [f"took {seconds(call.ended_at - call.sent_at)}"]
    if call.first_token_at is not None:
        parts.append(f"first token after {seconds(call.first_token_at - call.sent_at)}")
    usage = call.usage
    if call.status == DONE and usage is not None and usage.queue_s is not None:
        parts.append(f"{seconds(usage.queue_s)} of it queued")
    return [", ".join(parts)]


def ranked(call: CallRecord) -> list[tuple[str, float]]:
    """The choices of a selection with their scores, the best first."""
    return sorted(call.scores, key=lambda item: -item[1])


def source_line(location: str) -> str:
    """The line of code, or nothing where its file cannot be read."""
    file, _, line = location.rpartition(":")
    text = linecache.getline(file, int(line)).strip() if line.isdecimal() else ""
    return text if len(text) <= _MAX_SOURCE else f"{text[: _MAX_SOURCE - 1]}…"
