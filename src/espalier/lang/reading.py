"""Reading from a stream: variables and answers, blocking or awaited, with no wait that cannot end.

Each blocking method has an awaited twin of a few lines; what they share stands beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from espalier.errors import (
    GenerationError,
    ProgramError,
    ProgramTimeoutError,
    UnknownVariableError,
)
from espalier.lang.failure import Failure
from espalier.lang.ops import AskOp
from espalier.lang.program import refuse_blocking
from espalier.lang.promise import Promise
from espalier.lang.stream import Stream
from espalier.lang.variables import Variable

T = TypeVar("T")
Question = Callable[[Stream], T]
OfFailed = Callable[[Failure], T]


def ask(stream: Stream, question: Question[T], of_failed: OfFailed[T] | None = None) -> Promise[T]:
    """The answer to a question, once everything submitted before it is done."""
    if stream.is_settled() and stream.failure is None and stream.program.failure is None:
        return Promise.resolved(question(stream))
    op = AskOp(question, of_failed)
    stream.enqueue([op])
    return op.answer


def _not_set(name: str | None, timeout_s: float | None) -> ProgramTimeoutError:
    return ProgramTimeoutError(f"variable {name!r} is not set after {timeout_s} s.")


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads a stream: from inside its program's body, or from outside while the body may run.

    From outside, a name that is unknown may still come, and the text is complete only when the
    body has ended; so these reads wait for it.
    """

    stream: Stream
    is_outside: bool

    def _find(self, name: str | None) -> Variable | Promise[Variable | None]:
        variable = self.stream.variables.get(name)
        if variable is not None:
            self._check_scope(variable)
            if name is not None:
                self.stream.program.read_names.add(name)
            return variable
        if name is None or not self.is_outside or self.stream.program.body_ended.done:
            raise self._unknown(name)
        return self.stream.variables.appearing(name)

    def _check_scope(self, variable: Variable) -> None:
        if variable.is_in_scope and not self.is_outside:
            raise ProgramError(
                f"variable {variable.name!r} was read inside its own var_scope block, which sets "
                "it at its end; read it after the block."
            )

    def _unknown(self, name: str | None) -> BaseException:
        failure = self.stream.program.failure
        if failure is not None:  # the body may have failed before it came to the name
            return failure.raised()
        known = sorted(repr(other) for other in self.stream.variables if other is not None)
        return UnknownVariableError(
            f"no variable {name!r}: nothing that was submitted to this state sets it. "
            f"It has {', '.join(known) or 'no variables'}."
        )

    def find_blocking(self, name: str | None, timeout_s: float | None = None) -> Variable:
        """The variable, once it has been submitted."""
        found = self._find(name)
        if isinstance(found, Variable):
            return found
        refuse_blocking(f"reading {name!r}", f"await s.aget({name!r})")
        variable = found.result() if self.stream.program.wait(found, timeout_s) else None
        if not found.done:
            raise _not_set(name, timeout_s)
        if variable is None:
            raise self._unknown(name)
        return variable

    async def find_async(self, name: str | None) -> Variable:
        """The variable, once it has been submitted."""
        found = self._find(name)
        if isinstance(found, Variable):
            return found
        variable = await found.wait_async()
        if variable is None:
            raise self._unknown(name)
        return variable

    def get_blocking(self, name: str | None, timeout_s: float | None = None) -> Any:
        """A variable's value, once it is set; its GenerationError, or ProgramTimeoutError."""
        promise = self.find_blocking(name, timeout_s).ready()
        if not promise.done:
            refuse_blocking(f"reading {name!r}", f"await s.aget({name!r})")
            if not self.stream.program.wait(promise, timeout_s):
                raise _not_set(name, timeout_s)
        return promise.result()

    async def get_async(self, name: str | None) -> Any:
        """A variable's value, once it is set; raises its GenerationError."""
        return await (await self.find_async(name)).ready().wait_async()

    def ended_blocking(self, name: str | None) -> Variable:
        """A variable whose call has ended, with a value or a text; raises its GenerationError."""
        variable = self.find_blocking(name)
        try:
            self.get_blocking(name)
        except GenerationError:
            if variable.texts is None:
                raise
        return variable

    async def ended_async(self, name: str | None) -> Variable:
        """A variable whose call has ended, with a value or a text; raises its GenerationError."""
        variable = await self.find_async(name)
        try:
            await self.get_async(name)
        except GenerationError:
            if variable.texts is None:
                raise
        return variable

    def wait_for_body(self) -> None:
        """From outside: waits until the body has ended, so that what is added next comes after it.

        Raises ProgramError where waiting would stop the loop that the body needs.
        """
        if self.is_outside and not self.stream.program.body_ended.done:
            refuse_blocking("adding to a state whose body still runs", "await s.afinish() first")
            self.stream.program.wait(self.stream.program.body_ended)

    def ask_blocking(
        self,
        member: str,
        twin: str,
        question: Question[T],
        of_failed: OfFailed[T] | None = None,
    ) -> T:
        """`ask`, waiting. `member` is what the user called, `twin` its form for async programs."""
        refuse_blocking(f"{member}()", f"await s.{twin}()")
        if self.is_outside:
            self.stream.program.wait(self.stream.program.body_ended)
        answer = ask(self.stream, question, of_failed)
        self.stream.program.wait(answer)
        return answer.result()

    async def ask_async(self, question: Question[T], of_failed: OfFailed[T] | None = None) -> T:
        """`ask`, awaited."""
        if self.is_outside:
            await self.stream.program.body_ended.wait_async()
        return await ask(self.stream, question, of_failed).wait_async()
