"""ProgramState: what a program appends to and reads from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any, overload

from espalier.backends.base import Message
from espalier.errors import ProgramError, UnsupportedError, UserInputError
from espalier.lang import iterate
from espalier.lang.copy_scope import CopyScope
from espalier.lang.failure import Failure
from espalier.lang.group import ProgramStateGroup
from espalier.lang.ir import SglExpr
from espalier.lang.leaving import Leaves
from espalier.lang.ops import AdoptOp, ForkOp
from espalier.lang.program import current_program, may_not_block
from espalier.lang.promise import Promise
from espalier.lang.questions import messages_of, nothing_of, text_of
from espalier.lang.reading import Reader
from espalier.lang.stream import Stream
from espalier.lang.submission import append
from espalier.lang.variables import Variable
from espalier.lang.writing import Writer
from espalier.report.view import RunView
from espalier.types import Usage

MAX_FORKS = 65_536


class ProgramState(Writer, Leaves):
    """The state of one run of a program: a prompt that grows, and its variables.

    Appending returns at once; reading a variable waits for that variable only.

    `is_outside` marks the handle that `run(stream=True)` returns while the body may still run.
    """

    def __init__(self, stream: Stream, *, is_outside: bool = False) -> None:
        self.stream = stream
        self.reader = Reader(stream, is_outside)

    @property
    def ret_value(self) -> Any:
        """What the program's body returned; None before that."""
        return self.stream.program.ret_value

    def __iadd__(self, other: object) -> ProgramState:
        append(self._writable(), other)
        return self

    def _writable(self) -> Stream:
        self.reader.wait_for_body()
        return self.stream

    def _append(self, value: object) -> None:
        append(self._writable(), value)

    def _check_writable(self) -> None:
        self._writable()

    def _may_close_role(self, role: str) -> bool:
        return self.stream.open_role == role and self.stream.is_open()

    def _may_close_scope(self, name: str) -> bool:
        scopes = self.stream.scopes
        is_innermost = bool(scopes) and scopes[-1].variable.name == name
        return is_innermost and self.stream.is_open()

    # Variables.

    def __getitem__(self, name: str) -> Any:
        return self.reader.get_blocking(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def __contains__(self, name: object) -> bool:
        """True for a name that is set or has been submitted; does not wait."""
        return name in self.stream.variables

    def get_var(self, name: str, timeout: float | None = None) -> Any:
        """A variable's value; waits for it, at most `timeout` seconds.

        Raises ProgramTimeoutError (a TimeoutError) then; the call goes on.
        """
        return self.reader.get_blocking(name, timeout)

    async def aget(self, name: str) -> Any:
        """A variable's value, for async programs."""
        return await self.reader.get_async(name)

    def set_var(self, name: str, value: Any) -> None:
        """Sets a variable at once, whatever is queued; nothing is appended."""
        if not isinstance(name, str):
            raise UserInputError(f"the variable name is {name!r}; text is allowed.")
        stream = self._writable()
        stream.check_open()
        stream.variables.declare(Variable.set_to(name, value))
        if stream.record is not None:
            stream.record.variable(name, "set", value)

    def get_meta_info(self, name: str) -> Any:
        """The meta_info of the call that set a variable (a list for n > 1), or None."""
        return self.reader.ended_blocking(name).meta

    async def aget_meta_info(self, name: str) -> Any:
        """`get_meta_info` for async programs."""
        return (await self.reader.ended_async(name)).meta

    # The text.

    @overload
    def text(self, name: None = None) -> str: ...

    @overload
    def text(self, name: str) -> Any: ...

    def text(self, name: str | None = None) -> Any:
        """The whole text, once everything appended is there; of a variable, what it was read from.

        A variable that a generation set to a value of a type has its text here (a list for n > 1),
        also where the text ended too early to be such a value.
        """
        if name is None:
            return self.reader.ask_blocking("text", "atext", text_of)
        return self.reader.ended_blocking(name).text

    @overload
    async def atext(self, name: None = None) -> str: ...

    @overload
    async def atext(self, name: str) -> Any: ...

    async def atext(self, name: str | None = None) -> Any:
        """`text` for async programs."""
        if name is None:
            return await self.reader.ask_async(text_of)
        return (await self.reader.ended_async(name)).text

    def messages(self) -> list[Message]:
        """The messages whose roles are closed, in OpenAI's form."""
        return self.reader.ask_blocking("messages", "amessages", messages_of)

    async def amessages(self) -> list[Message]:
        """`messages` for async programs."""
        return await self.reader.ask_async(messages_of)

    def sync(self) -> None:
        """Waits for everything appended; raises what went wrong."""
        self.reader.ask_blocking("sync", "afinish", nothing_of)

    async def afinish(self) -> None:
        """`sync` for async programs."""
        await self.reader.ask_async(nothing_of)

    def error(self) -> BaseException | None:
        """Waits for everything appended; what went wrong, or None. Does not raise it."""
        return self.reader.ask_blocking("error", "aerror", nothing_of, Failure.raised)

    async def aerror(self) -> BaseException | None:
        """`error` for async programs."""
        return await self.reader.ask_async(nothing_of, Failure.raised)

    def usage(self, name: str | None = None) -> Usage:
        """What the calls of this state, its forks and the programs it ran cost, once they ended.

        With a name: what the call cost that set this variable; of a variable that join gathered,
        what the calls of all forks cost; nothing for one that no call set.
        """
        if name is None:
            return self.reader.ask_blocking("usage", "ausage", _usage, self._failed_usage)
        return _copied(self.reader.ended_blocking(name).usage)

    async def ausage(self, name: str | None = None) -> Usage:
        """`usage` for async programs."""
        if name is None:
            return await self.reader.ask_async(_usage, self._failed_usage)
        return _copied((await self.reader.ended_async(name)).usage)

    def show(self) -> RunView:
        """A drawing of the whole run that this state is part of, as far as it has come.

        The run must be recorded: `f.run(..., trace=True)`, or `with record_run():` around it. In a
        notebook the drawing shows itself; `.save(path)` writes one HTML file, `.html` is its text.
        Waits for what has been appended, except inside an async program. Raises ProgramError where
        the run is not recorded.
        """
        recorder = self.stream.program.recorder
        if recorder is None:
            raise ProgramError(
                "this run was not recorded: run it with trace=True, or inside "
                "`with espalier.record_run():`."
            )
        if not may_not_block():
            self.error()
        return recorder.view()

    def _failed_usage(self, failure: Failure) -> Usage:
        return self.stream.node.total()

    def cancel(self) -> None:
        """Cancels what this state and its forks have submitted; reading it then raises."""
        self.stream.cancel(Failure.cancelled())

    # Leaving a `with` block: what has not finished is cancelled, what has can still be read.

    def _cancel_unfinished(self) -> list[Promise[None]]:
        failure = Failure.cancelled("the `with` block of its state was left")
        program = self.stream.program
        if not self.stream.is_root:
            return [self.stream.cancel_unfinished(failure)]
        program.cancel(failure)
        # A body that leaves a block on its own state does not wait for its own end.
        body = [program.body_ended] if current_program.get() is not program else []
        return [*body, *program.when_all_idle()]

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        names = ", ".join(repr(name) for name in self.stream.variables if name is not None)
        condition = "settled" if self.stream.is_settled() else "running"
        if self.stream.failure is not None:
            condition = "failed"
        return f"<ProgramState {condition}, variables: {names or 'none'}>"

    # Forks.

    def fork(
        self, size: int = 1, position_ids_offset: None = None
    ) -> ProgramStateGroup[ProgramState]:
        """`size` copies that go on from here, in parallel; returns at once.

        They take over text, messages, open role and variables, also those that are still to come.
        With `size` > 1 the common prompt is computed once, before the first of them needs it.
        """
        if position_ids_offset is not None:
            raise UnsupportedError(
                "position_ids_offset has no effect on any backend; leave it out."
            )
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_FORKS:
            raise UserInputError(f"fork size is {size!r}; 0 to {MAX_FORKS} is allowed.")
        return self.fork_sharing(size, ())

    def fork_sharing(self, size: int, shared: Sequence[SglExpr]) -> ProgramStateGroup[ProgramState]:
        """`fork`, where each child is known to begin with these constants and roles."""
        self._writable().check_open()
        point: Promise[Any] = Promise()
        self.stream.enqueue([ForkOp(point, size, shared)])
        streams = self.stream.fork(point, size, AdoptOp)
        return ProgramStateGroup([ProgramState(stream) for stream in streams], self)

    def copy(self) -> CopyScope[ProgramState]:
        """A `with` block (or `async with`) whose target is a fork of one, joined at its end."""
        return CopyScope(self.fork, ProgramState.cancel)

    # Streaming.

    def text_iter(
        self, var_name: str | None = None, *, sample: int = 0, cancel_on_close: bool = False
    ) -> Iterator[str]:
        """New pieces of the text, or of one variable, as they come; joined they are all of it.

        `sample` picks one of a variable's n samples. With `cancel_on_close`, closing the iterator
        early cancels what the state and its forks have submitted.
        """
        iterate.check_arguments(var_name, sample, return_meta_data=False)
        return iterate.iterate(self.reader, var_name, sample, cancel_on_close=cancel_on_close)

    def text_async_iter(
        self,
        var_name: str | None = None,
        return_meta_data: bool = False,
        *,
        sample: int = 0,
        cancel_on_close: bool = False,
    ) -> AsyncIterator[Any]:
        """`text_iter` for async code; with `return_meta_data`, pairs (piece, meta_info so far)."""
        iterate.check_arguments(var_name, sample, return_meta_data)
        pieces = iterate.iterate_async(
            self.reader, var_name, sample, cancel_on_close=cancel_on_close
        )
        return pieces if return_meta_data else _texts(pieces)


async def _texts(pieces: AsyncIterator[tuple[str, Any]]) -> AsyncIterator[str]:
    async for text, meta in pieces:
        if text or not meta:  # the last piece of a call may bring its meta_info alone
            yield text


def _copied(usage: Usage | None) -> Usage:
    return Usage() if usage is None else replace(usage)


def _usage(stream: Stream) -> Usage:
    return stream.node.total()
