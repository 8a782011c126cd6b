"""The text of a state: prompt segments in order, the messages in them, the open role.

Used on the loop's thread only. It must not know queues, variables or backends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from espalier.backends.base import Chat, Message, RoleTemplate
from espalier.errors import RoleError
from espalier.lang.ir import SglConstantText, SglExpr, SglRoleBegin, SglRoleEnd
from espalier.types import Prompt, Segment, TextSegment, TokenSegment


class Transcript:
    """Segments and messages. Constants of raw prompts may spell control tokens; in roles not."""

    __slots__ = ("_role_start", "messages", "open_role", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.messages: list[Message] = []
        self.open_role: str | None = None
        self._role_start = 0

    def copy(self) -> Transcript:
        """An independent copy."""
        twin = Transcript()
        twin.segments = self.segments.copy()
        twin.messages = [dict(message) for message in self.messages]
        twin.open_role, twin._role_start = self.open_role, self._role_start
        return twin

    def prompt(self) -> Prompt:
        """The segments so far."""
        return tuple(self.segments)

    def text(self, start: int = 0) -> str:
        """The text from segment `start` on."""
        return "".join(segment.text for segment in self.segments[start:])

    def add_constant(self, text: str) -> None:
        """Appends text that a user wrote."""
        if text:
            self.segments.append(TextSegment(text, allow_special=self.open_role is None))

    def add_generated(self, text: str, token_ids: tuple[int, ...] | None) -> None:
        """Appends text that a model wrote, with its tokens where they are known."""
        if token_ids:
            self.segments.append(TokenSegment(token_ids, text))
        elif text:
            self.segments.append(TextSegment(text, allow_special=False))

    def begin_role(self, role: str, template: RoleTemplate) -> str:
        """Opens a message and returns the text that was appended for it."""
        if self.open_role is not None:
            raise RoleError(f"{role} opened inside {self.open_role}; close that one first.")
        text = template.opening(role, self.messages)
        if text:
            self.segments.append(TextSegment(text, allow_special=True))
        self.open_role, self._role_start = role, len(self.segments)
        return text

    def end_role(self, role: str, template: RoleTemplate) -> str:
        """Closes the open message and returns the text that was appended for it."""
        if self.open_role != role:
            raise RoleError(f"{role} closed while {self.open_role or 'no role'} is open.")
        content = self.text(self._role_start).lstrip()
        text = template.closing(role, self.messages)
        if text:
            self.segments.append(TextSegment(text, allow_special=True))
        self.messages.append({"role": role, "content": content})
        self.open_role = None
        return text

    def chat(self, state_id: str) -> Chat:
        """The messages so far, and the one that is open."""
        messages = tuple(dict(message) for message in self.messages)
        text = "" if self.open_role is None else self.text(self._role_start)
        return Chat(messages, self.open_role, text, state_id)

    def extend(self, segments: Sequence[Segment], messages: Sequence[Message]) -> str:
        """Appends what another transcript added after it was copied; returns the text."""
        self.segments.extend(segments)
        self.messages.extend(dict(message) for message in messages)
        return "".join(segment.text for segment in segments)


def extended(
    transcript: Transcript, exprs: Sequence[SglExpr], role_template: Callable[[], RoleTemplate]
) -> Prompt:
    """The prompt with constants and roles appended; the transcript stays as it is."""
    twin = transcript.copy()
    for expr in exprs:
        match expr:
            case SglConstantText():
                twin.add_constant(expr.value)
            case SglRoleBegin():
                twin.begin_role(expr.role, role_template())
            case SglRoleEnd():
                twin.end_role(expr.role, role_template())
            case _:
                raise AssertionError(f"{expr!r} is no constant")
    return twin.prompt()
