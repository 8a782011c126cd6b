"""Operations of a stream that call no model: text, roles, scopes, questions, forks, the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from espalier.backends.base import Message
from espalier.errors import ProgramError
from espalier.lang.failure import Failure
from espalier.lang.ir import SglConstantText, SglExpr, as_expr, flat_parts
from espalier.lang.location import SourceLine
from espalier.lang.promise import Promise
from espalier.lang.recording import StateRecorder
from espalier.lang.stream import ForkPoint, Snapshot, Stream
from espalier.lang.variables import Scope
from espalier.report.record import PROGRAM, TEMPLATE
from espalier.types import Segment

T = TypeVar("T")


class Awaited(Protocol):
    """A value that is still to come, such as a variable."""

    def ready(self) -> Promise[Any]:
        """The promise of the value, with whatever will set it told to go on."""
        ...


def picked(value: Any, items: Sequence[int]) -> Any:
    """The part of nested lists that `items` leads to."""
    for index in items:
        value = value[index]
    return value


def texts_of(value: Any, items: Sequence[int]) -> list[str]:
    """What appending a value appends; raises UserInputError where it is neither text nor a list."""
    found = []
    for part in flat_parts(as_expr(picked(value, items))):
        if not isinstance(part, SglConstantText):
            raise ProgramError(f"{part!r} is a value and was appended; text alone can be.")
        found.append(part.value)
    return found


class QuietOp:
    """An operation that nobody waits for and that may wait itself."""

    __slots__ = ()
    wakes = False
    place: str | None = None
    timeout_s: float | None = None

    def failed(self, error: BaseException) -> Failure:
        """The error itself is what readers get."""
        return Failure(error)

    def abandon(self, failure: Failure) -> None:
        """Nobody waits for it."""


class WaitedForOp(QuietOp):
    """An operation whose error the body of a compiled program raises as well."""

    __slots__ = ()

    def failed(self, error: BaseException) -> Failure:
        """The error, of which the user is told elsewhere."""
        failure = Failure(error)
        failure.mark_read()
        return failure


class TextOp(QuietOp):
    """Appends a constant."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def run(self, stream: Stream) -> None:
        """Appends it."""
        stream.transcript.add_constant(self.text)
        if stream.record is not None:
            stream.record.text(PROGRAM, self.text)
        stream.append_text(self.text)


class RoleOp(QuietOp):
    """Opens or closes a message."""

    __slots__ = ("begins", "role")

    def __init__(self, role: str, *, begins: bool) -> None:
        self.role = role
        self.begins = begins

    def run(self, stream: Stream) -> None:
        """Appends the template's text."""
        template = stream.program.role_template()
        change = stream.transcript.begin_role if self.begins else stream.transcript.end_role
        text = change(self.role, template)
        if stream.record is not None:
            stream.record.text(TEMPLATE, text)
        stream.append_text(text)


class ScopeOp(QuietOp):
    """Begins or ends the recording of a variable."""

    __slots__ = ("begins", "location", "scope")

    def __init__(self, scope: Scope, location: SourceLine | None, *, begins: bool) -> None:
        self.scope = scope
        self.location = location
        self.begins = begins

    def run(self, stream: Stream) -> None:
        """Notes the start, or sets the variable."""
        if self.begins:
            self.scope.start = len(stream.transcript.segments)
        else:
            text = stream.transcript.text(self.scope.start)
            self.scope.variable.resolve(text)
            if stream.record is not None:
                stream.record.variable(self.scope.variable.name or "", "var_scope", text)

    def abandon(self, failure: Failure) -> None:
        """The variable will not be set."""
        name = self.scope.variable.name
        self.scope.variable.fail(
            failure.raised_for(self, f"var_scope {name!r}", name, self.location)
        )


class AskOp(Generic[T]):
    """Asks something of the stream once everything before it is done.

    `of_failed` answers in a stream that has failed; where it is None, asking raises.
    """

    __slots__ = ("answer", "of_failed", "question")
    wakes = True
    place: str | None = None
    timeout_s: float | None = None

    def __init__(
        self, question: Callable[[Stream], T], of_failed: Callable[[Failure], T] | None = None
    ) -> None:
        self.question = question
        self.of_failed = of_failed
        self.answer: Promise[T] = Promise()

    def run(self, stream: Stream) -> None:
        """Answers."""
        self.answer.resolve(self.question(stream))

    def failed(self, error: BaseException) -> Failure:
        """The error itself is what readers get."""
        return Failure(error)

    def abandon(self, failure: Failure) -> None:
        """Answers for a failed stream."""
        if self.of_failed is None:
            self.answer.fail(failure.raised)
        else:
            self.answer.resolve(self.of_failed(failure))


class ForkOp(QuietOp):
    """Marks where forks start."""

    __slots__ = ("point", "shared", "size")
    wakes = True

    def __init__(self, point: ForkPoint, size: int, shared: Sequence[SglExpr] = ()) -> None:
        self.point = point
        self.size = size
        self.shared = tuple(shared)  # constants and roles that each fork is known to begin with

    def run(self, stream: Stream) -> None:
        """Hands the forks their start."""
        self.point.resolve(stream.snapshot(self.size, self.shared))

    def abandon(self, failure: Failure) -> None:
        """The forks fail as their parent did."""
        self.point.resolve(failure)


class ParentFailedError(Exception):
    """Carries a parent's failure to its fork."""

    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self.failure = failure


class AdoptOp(QuietOp):
    """Starts a fork, once its parent has come to the fork's place."""

    __slots__ = ("point",)

    def __init__(self, point: ForkPoint) -> None:
        self.point = point

    def run(self, stream: Stream) -> Awaitable[None] | None:
        """Waits for the parent."""
        if not self.point.done:
            return self._wait(stream)
        self._adopt(stream, self.point.result())
        return None

    async def _wait(self, stream: Stream) -> None:
        self._adopt(stream, await self.point.wait_async())

    @staticmethod
    def _adopt(stream: Stream, start: Snapshot | Failure) -> None:
        if isinstance(start, Failure):
            raise ParentFailedError(start)
        stream.adopt(start)

    def failed(self, error: BaseException) -> Failure:
        """The parent's failure."""
        return error.failure if isinstance(error, ParentFailedError) else Failure(error)


class ExtendOp(QuietOp):
    """Appends what joined forks have added."""

    __slots__ = ("messages", "record", "segments")

    def __init__(
        self,
        segments: Sequence[Segment],
        messages: Sequence[Message],
        record: StateRecorder | None = None,
    ) -> None:
        self.segments = segments
        self.messages = messages
        self.record = record  # the fork's

    def run(self, stream: Stream) -> None:
        """Appends it."""
        text = stream.transcript.extend(self.segments, self.messages)
        if stream.record is not None:
            stream.record.took_over(self.record)
        stream.append_text(text)


class LateExtendOp(WaitedForOp):
    """Appends what forks that are being joined have added, once they have."""

    __slots__ = ("added", "records")
    wakes = True

    def __init__(
        self,
        added: Promise[list[tuple[Sequence[Segment], Sequence[Message]]]],
        records: Sequence[StateRecorder | None],
    ) -> None:
        self.added = added
        self.records = records  # of the forks

    async def run(self, stream: Stream) -> None:
        """Waits and appends."""
        added = await self.added.wait_async()
        for (segments, messages), record in zip(added, self.records, strict=True):
            text = stream.transcript.extend(segments, messages)
            if stream.record is not None:
                stream.record.took_over(record)
            stream.append_text(text)


class PromisedTextOp(WaitedForOp):
    """Appends a value that is still to come; `items` picks from lists."""

    __slots__ = ("items", "variable")

    def __init__(self, variable: Awaited, items: tuple[int, ...]) -> None:
        self.variable = variable
        self.items = items

    async def run(self, stream: Stream) -> None:
        """Waits and appends."""
        for text in texts_of(await self.variable.ready().wait_async(), self.items):
            stream.transcript.add_constant(text)
            if stream.record is not None:
                stream.record.text(PROGRAM, text)
            stream.append_text(text)


class EndOp(QuietOp):
    """Ends the feed of a stream's text."""

    __slots__ = ()

    def run(self, stream: Stream) -> None:
        """Closes the feed."""
        if stream.feed is not None:
            stream.feed.close()
