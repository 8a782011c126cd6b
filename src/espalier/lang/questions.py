"""What can be asked of a stream once everything submitted before is done."""

from __future__ import annotations

from espalier.backends.base import Message
from espalier.lang.stream import Stream


def text_of(stream: Stream) -> str:
    """The whole text."""
    return stream.transcript.text()


def messages_of(stream: Stream) -> list[Message]:
    """The messages whose roles are closed, copied."""
    return [dict(message) for message in stream.transcript.messages]


def nothing_of(stream: Stream) -> None:
    """Nothing: asking it waits."""
    return
