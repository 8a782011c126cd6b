"""A conversation: turns that may be cut short, on one state whose history stays cached."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from espalier.lang.state import ProgramState

ANSWER = "answer"


class ChatSession:
    """The state of a conversation. Each turn runs on a fork, which becomes the state if it ends.

    So a turn that fails leaves the conversation as it was, and one that is cut short leaves the
    part that has been seen.
    """

    def __init__(self, sampling: Mapping[str, Any], system: str | None = None) -> None:
        self._sampling = sampling
        self._system = system
        self._state: ProgramState | None = None

    def reset(self, system: str | None = None) -> None:
        """Forgets the turns; keeps the system message unless another is given."""
        if system is not None:
            self._system = system
        self._state = None

    def ask(self, text: str) -> Generator[str, None, None]:
        """The answer to a user's message in pieces, to be read to the end.

        Closing it, or ^C while it waits, cuts the answer short: what has come so far is kept as
        the answer. Raises EspalierError; then the turn is dropped.
        """
        from espalier.lang.api import assistant, gen, user

        before = self._current()
        turn = before.fork(1)[0]
        turn += user(text)
        turn += assistant(gen(ANSWER))
        seen = ""
        try:
            for piece in turn.text_iter(ANSWER):
                seen += piece
                yield piece
        except (KeyboardInterrupt, GeneratorExit):
            turn.cancel()
            turn = before.fork(1)[0]
            turn += user(text)
            turn += assistant(seen)
            self._state = turn
            raise
        self._state = turn

    def last_meta_info(self) -> Mapping[str, Any]:
        """meta_info of the last answer, empty where it was cut short."""
        if self._state is None or ANSWER not in self._state:
            return {}
        return self._state.get_meta_info(ANSWER) or {}

    def _current(self) -> ProgramState:
        if self._state is None:
            self._state = self._start()
        return self._state

    def _start(self) -> ProgramState:
        from espalier.lang.function import function

        system = self._system

        def body(s: ProgramState) -> None:
            if system:
                s.system(system)

        return function(body).run(stream=True, **self._sampling)
