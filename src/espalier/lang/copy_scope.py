"""`copy()` as a block, of a state that runs or is traced."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Generic, Protocol, TypeVar

S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)


class Joinable(Protocol[S_co]):
    """What the block needs of a group of forks."""

    def __getitem__(self, index: int) -> S_co:
        """A fork."""
        ...

    def join(self) -> None:
        """Brings its variables into the state that it came from."""
        ...

    async def ajoin(self) -> None:
        """`join` for async programs."""
        ...


class CopyScope(Generic[S]):
    """A fork of one as a block: joined at its end, cancelled where an exception leaves it."""

    def __init__(self, fork: Callable[[], Joinable[S]], cancel: Callable[[S], None]) -> None:
        self._fork = fork
        self._cancel = cancel
        self._group: Joinable[S] | None = None

    def __enter__(self) -> S:
        self._group = self._fork()
        return self._group[0]

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._group is not None
        if kind is None:
            self._group.join()
        else:
            self._cancel(self._group[0])

    async def __aenter__(self) -> S:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._group is not None
        if kind is None:
            await self._group.ajoin()
        else:
            self._cancel(self._group[0])
