"""Reading from a stream: variables and answers, blocking or awaited, with no wait that cannot end.

Each blocking function has an awaited twin of a few lines; what they share is above them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from espalier.errors import ProgramError, UnknownVariableError
from espalier.lang.failure import Failure
from espalier.lang.ops import AskOp
from espalier.lang.program import current_program, refuse_blocking
from espalier.lang.promise import Promise
from espalier.lang.stream import Stream
from espalier.lang.variables import Variable

T = TypeVar("T")


def check_scope(stream: Stream, variable: Variable) -> None:
    """Raises ProgramError where the variable's own var_scope block is open around the reader."""
    is_own = any(scope.variable is variable for scope in stream.scopes)
    if is_own or (variable in stream.outer_scopes and not variable.promise.done):
        raise ProgramError(
            f"variable {variable.name!r} was read inside its own var_scope block, which sets it "
            "at its end; read it after the block."
        )


def find(stream: Stream, name: str | None) -> Variable | Promise[Variable | None]:
    """The variable, or a promise of it where the program's body runs elsewhere and may set it."""
    variable = stream.variables.get(name)
    if variable is not None:
        check_scope(stream, variable)
        return variable
    program = stream.program
    if name is None or program.body_ended.done or current_program.get() is program:
        raise unknown(stream, name)
    return stream.variables.appearing(name)


def unknown(stream: Stream, name: str | None) -> UnknownVariableError:
    """The error of a name that nothing sets."""
    known = ", ".join(sorted(repr(other) for other in stream.variables if other is not None))
    return UnknownVariableError(
        f"no variable {name!r}: nothing that was submitted to this state sets it. "
        f"It has {known or 'no variables'}."
    )


def find_blocking(stream: Stream, name: str | None, timeout_s: float | None = None) -> Variable:
    """The variable, once it has been submitted."""
    found = find(stream, name)
    if isinstance(found, Promise):
        refuse_blocking(f"reading {name!r}", f"await s.aget({name!r})")
        found = found.wait(timeout_s) or found
    if isinstance(found, Promise):
        raise unknown(stream, name)
    return found


async def find_async(stream: Stream, name: str | None) -> Variable:
    """The variable, once it has been submitted."""
    found = find(stream, name)
    if isinstance(found, Promise):
        found = await found.wait_async() or found
    if isinstance(found, Promise):
        raise unknown(stream, name)
    return found


def get_blocking(stream: Stream, name: str | None, timeout_s: float | None = None) -> Any:
    """A variable's value, once it is set; raises its GenerationError, or TimeoutError."""
    promise = find_blocking(stream, name, timeout_s).ready()
    if not promise.done:
        refuse_blocking(f"reading {name!r}", f"await s.aget({name!r})")
    try:
        return promise.wait(timeout_s)
    except TimeoutError:
        raise TimeoutError(f"variable {name!r} is not set after {timeout_s} s.") from None


async def get_async(stream: Stream, name: str | None) -> Any:
    """A variable's value, once it is set; raises its GenerationError."""
    return await (await find_async(stream, name)).ready().wait_async()


def ask(
    stream: Stream,
    question: Callable[[Stream], T],
    of_failed: Callable[[Failure], T] | None = None,
) -> Promise[T]:
    """The answer to a question, once everything submitted before it is done."""
    if stream.is_settled() and stream.failure is None and stream.program.failure is None:
        return Promise.resolved(question(stream))
    op = AskOp(question, of_failed)
    stream.enqueue([op])
    return op.answer


def ask_blocking(
    stream: Stream,
    member: str,
    twin: str,
    question: Callable[[Stream], T],
    of_failed: Callable[[Failure], T] | None = None,
) -> T:
    """`ask`, waiting. `member` is what the user called, `twin` its form for async programs."""
    answer = ask(stream, question, of_failed)
    if not answer.done:
        refuse_blocking(f"{member}()", f"await s.{twin}()")
    return answer.wait()
