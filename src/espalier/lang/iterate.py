"""Iteration over the text of a state, or of one variable, as it comes.

Where the program does not stream, an iterator gives the final text once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from espalier.errors import ProgramError, UnknownVariableError, UserInputError
from espalier.lang.failure import Failure
from espalier.lang.feed import Feed
from espalier.lang.program import current_program, refuse_blocking
from espalier.lang.questions import text_of
from espalier.lang.reading import Reader
from espalier.lang.stream import Stream
from espalier.lang.variables import Variable

T = TypeVar("T")
_CLOSED_EARLY = "its iterator was closed"


def check_arguments(name: str | None, sample: int, return_meta_data: bool) -> None:
    """Raises UserInputError for arguments that contradict each other."""
    if name is not None and not isinstance(name, str):
        raise UserInputError(f"var_name is {name!r}; the name of a variable, or None for the text.")
    if not isinstance(sample, int) or isinstance(sample, bool) or sample < 0:
        raise UserInputError(f"sample is {sample!r}; an index from 0 is allowed.")
    if name is None and (sample or return_meta_data):
        raise UserInputError(
            "sample and return_meta_data belong to one variable; give its name as var_name."
        )


def as_text(variable: Variable, value: Any, sample: int) -> str:
    """The text of one sample of a value."""
    return str(_picked(variable, value if isinstance(value, list) else [value], sample))


def meta_of(variable: Variable, sample: int) -> Any:
    """The meta_info of one sample."""
    return variable.meta[sample] if isinstance(variable.meta, list) else variable.meta


def feed_of(variable: Variable, sample: int) -> Feed | None:
    """The feed of one sample, or None where the variable was set without one."""
    if not variable.feeds:
        return None
    return _picked(variable, variable.feeds, sample)


def _picked(variable: Variable, values: list[T], sample: int) -> T:
    if sample >= len(values):
        raise UserInputError(
            f"variable {variable.name!r} has {len(values)} values; sample {sample} is none."
        )
    return values[sample]


def iterate(
    reader: Reader, name: str | None, sample: int, *, cancel_on_close: bool
) -> Iterator[str]:
    """Blocking iteration; the pieces joined are the final text."""
    finished = False
    try:
        if name is None:
            yield from _whole(reader)
        else:
            yield from _of_variable(reader, name, sample)
        finished = True
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:
        reader.stream.program.interrupt(error)
        raise
    finally:
        if not finished and cancel_on_close:
            reader.stream.cancel(Failure.cancelled(_CLOSED_EARLY))


def _whole(reader: Reader) -> Iterator[str]:
    refuse_blocking("text_iter()", "async for piece in s.text_async_iter()")
    stream = reader.stream
    if stream.feed is None:
        yield reader.ask_blocking("text", "atext", text_of)
    else:
        _refuse_own_text(stream)
        stream.kick()
        for text, _ in stream.feed.read():
            if text:
                yield text


def _of_variable(reader: Reader, name: str, sample: int) -> Iterator[str]:
    refuse_blocking("text_iter()", "async for piece in s.text_async_iter()")
    try:
        variable = reader.find_blocking(name)
    except UnknownVariableError:
        if reader.stream.feed is None or reader.stream.program.failure is not None:
            raise
        yield ""  # as in the reference: the program ended and never set it
        return
    promise = variable.ready()
    feed = feed_of(variable, sample)
    if feed is None:
        yield as_text(variable, promise.wait(), sample)
        return
    for text, _ in feed.read():
        if text:
            yield text


def _refuse_own_text(stream: Stream) -> None:
    """Raises ProgramError where a body waits for the end of a text that it may go on with."""
    if current_program.get() is stream.program and not stream.joined:
        raise ProgramError(
            "the text of a streaming state ends when its program's body does, which would wait for "
            "itself here; iterate over a variable, text_iter(name), or over the state that run "
            "returned."
        )


async def iterate_async(
    reader: Reader, name: str | None, sample: int, *, cancel_on_close: bool
) -> AsyncIterator[tuple[str, Any]]:
    """Awaited iteration over (piece, meta_info so far)."""
    finished = False
    pieces = _whole_async(reader) if name is None else _of_variable_async(reader, name, sample)
    try:
        async for piece in pieces:
            yield piece
        finished = True
    finally:
        if not finished and cancel_on_close:
            reader.stream.cancel(Failure.cancelled(_CLOSED_EARLY))


async def _whole_async(reader: Reader) -> AsyncIterator[tuple[str, Any]]:
    stream = reader.stream
    if stream.feed is None:
        yield await reader.ask_async(text_of), None
    else:
        _refuse_own_text(stream)
        stream.kick()
        async for piece in stream.feed.read_async():
            yield piece


async def _of_variable_async(
    reader: Reader, name: str, sample: int
) -> AsyncIterator[tuple[str, Any]]:
    try:
        variable = await reader.find_async(name)
    except UnknownVariableError:
        if reader.stream.feed is None or reader.stream.program.failure is not None:
            raise
        yield "", {}
        return
    promise = variable.ready()
    feed = feed_of(variable, sample)
    if feed is None:
        text = as_text(variable, await promise.wait_async(), sample)
        yield text, meta_of(variable, sample)
        return
    async for piece in feed.read_async():
        yield piece
