"""The state of a program from which only the named outputs can be read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from espalier.errors import ProgramError
from espalier.lang.state import ProgramState


class OutputState(ProgramState):
    """A state whose program was compiled for some outputs: the rest of it was not computed."""

    def __init__(self, state: ProgramState, outputs: tuple[str, ...]) -> None:
        super().__init__(state.stream, is_outside=state.reader.is_outside)
        self.outputs = outputs

    def _check(self, name: str | None) -> None:
        if name not in self.outputs:
            what = "its text" if name is None else f"variable {name!r}"
            raise ProgramError(
                f"{what} was not computed: the program was compiled for the outputs "
                f"{', '.join(map(repr, self.outputs))}. Compile it without outputs=, or name it."
            )

    def __getitem__(self, name: str) -> Any:
        self._check(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return name in self.outputs

    def get_var(self, name: str, timeout: float | None = None) -> Any:
        """A variable's value; only of an output."""
        self._check(name)
        return super().get_var(name, timeout)

    async def aget(self, name: str) -> Any:
        """A variable's value; only of an output."""
        self._check(name)
        return await super().aget(name)

    def get_meta_info(self, name: str) -> Any:
        """The meta_info of an output."""
        self._check(name)
        return super().get_meta_info(name)

    async def aget_meta_info(self, name: str) -> Any:
        """The meta_info of an output."""
        self._check(name)
        return await super().aget_meta_info(name)

    def text(self, name: str | None = None) -> Any:
        """The text of an output."""
        self._check(name)
        return super().text(name)

    async def atext(self, name: str | None = None) -> Any:
        """The text of an output."""
        self._check(name)
        return await super().atext(name)

    def messages(self) -> Any:
        """Not computed: raises ProgramError."""
        self._check(None)

    async def amessages(self) -> Any:
        """Not computed: raises ProgramError."""
        self._check(None)

    def text_iter(self, var_name: str | None = None, **options: Any) -> Iterator[str]:
        """Pieces of an output."""
        self._check(var_name)
        return super().text_iter(var_name, **options)

    def text_async_iter(
        self, var_name: str | None = None, return_meta_data: bool = False, **options: Any
    ) -> AsyncIterator[Any]:
        """Pieces of an output."""
        self._check(var_name)
        return super().text_async_iter(var_name, return_meta_data, **options)

    def __repr__(self) -> str:
        return super().__repr__().replace("<ProgramState", "<OutputState", 1)
