"""The forks of a state, and how they are joined."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from espalier.backends.base import Message
from espalier.errors import ProgramError, RequestCancelledError, RoleError, UserInputError
from espalier.lang import loop
from espalier.lang.failure import Failure
from espalier.lang.leaving import Leaves
from espalier.lang.ops import EndOp, ExtendOp, LateExtendOp
from espalier.lang.program import refuse_blocking
from espalier.lang.promise import Promise
from espalier.lang.reading import ask
from espalier.lang.stream import Stream
from espalier.lang.submission import append
from espalier.lang.variables import Variable
from espalier.types import Segment, Usage

GATHER, CONCATENATE, CONCAT_TEXT = "gather_variable", "concate_and_append", "concat_text"
JOIN_MODES = (GATHER, CONCATENATE, CONCAT_TEXT)


class Forked(Protocol):
    """What a group needs of a state."""

    @property
    def stream(self) -> Stream:
        """The state's stream."""
        ...


S = TypeVar("S", bound=Forked)
Added = tuple[Sequence[Segment], Sequence[Message]]


class ProgramStateGroup(Leaves, Generic[S]):
    """Forks of one state, in order. `g += x` appends to each: text, an expression, a list with one
    item for each fork, or a function of the index. Leaving it as a `with` block cancels the forks
    that have not ended; what has can still be read.
    """

    def __init__(self, states: list[S], source: Forked) -> None:
        self.states = states
        self.src_state = source

    def __getitem__(self, index: int) -> S:
        return self.states[index]

    def __setitem__(self, index: int, state: S) -> None:
        # `g[i] += x` assigns the state that it has appended to.
        if self.states[index] is not state:
            raise ProgramError("a fork of a group cannot be replaced; append to it instead.")

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[S]:
        return iter(self.states)

    def _cancel_unfinished(self) -> list[Promise[None]]:
        failure = Failure.cancelled("the `with` block of its group was left")
        return [state.stream.cancel_unfinished(failure) for state in self.states]

    def __iadd__(self, other: object) -> ProgramStateGroup[S]:
        for state, item in zip(self.states, items_for(other, len(self.states)), strict=True):
            append(state.stream, item)
        return self

    def join(self, mode: str = GATHER, on_error: str = "raise") -> None:
        """Waits for the forks and brings their results into the state that they came from.

        gather_variable: each variable that is new in a fork becomes a list in the state, entry i
        from fork i, None where fork i has none. concate_and_append: the text that the forks added
        is appended in order, with its tokens. concat_text: both.

        A fork that failed raises its GenerationError here, after the others have ended
        (`on_error="raise"`) or have been cancelled ("cancel").
        """
        refuse_blocking("join()", "await group.ajoin()")
        self._begin_join(mode, on_error)
        try:
            loop.run_blocking(self._finish_join(mode, on_error))
        except Exception:
            raise
        except BaseException as error:
            self.src_state.stream.program.interrupt(error)
            raise

    async def ajoin(self, mode: str = GATHER, on_error: str = "raise") -> None:
        """`join` for async programs."""
        self._begin_join(mode, on_error)
        await self._finish_join(mode, on_error)

    def _begin_join(self, mode: str, on_error: str) -> None:
        check_join(mode, on_error)
        target = self.src_state.stream
        target.check_open()
        for index, state in enumerate(self.states):
            state.stream.check_open()
            if state.stream.scopes:
                raise ProgramError(
                    f"fork {index} is joined inside its var_scope block "
                    f"{state.stream.scopes[-1].variable.name!r}; join it after the block."
                )
            if mode != GATHER and state.stream.open_role != target.open_role:
                raise RoleError(
                    f"fork {index} is joined with {state.stream.open_role or 'no role'} open, its "
                    f"parent has {target.open_role or 'no role'} open; their text cannot be put "
                    "together. Close or open the role in both."
                )
        for state in self.states:
            state.stream.joined = True

    async def _finish_join(self, mode: str, on_error: str) -> None:
        added = await self._ended(on_error)
        streams, target = [state.stream for state in self.states], self.src_state.stream
        if mode != CONCATENATE:
            for name in self._new_names(streams, target):
                values, metas = gathered(name, streams)
                variable = Variable.set_to(name, values, metas)
                self._note(variable, values)
                target.variables.declare(variable)
        if mode != GATHER:
            parts = zip(added, streams, strict=True)
            target.enqueue([ExtendOp(*text, stream.record) for text, stream in parts])

    def _note(self, variable: Variable, values: list[Any]) -> None:
        """Notes what a gathered variable cost, and where the run is recorded that it was set."""
        assert variable.name is not None
        variable.usage = Usage()
        streams = [state.stream for state in self.states]
        for found in dict.fromkeys(of_each(variable.name, streams)):
            if found is not None and found.usage is not None:
                variable.usage.add(found.usage)
        record = self.src_state.stream.record
        if record is not None:
            record.variable(variable.name, "join", values)

    async def _ended(self, on_error: str) -> list[Added]:
        streams = [state.stream for state in self.states]
        asked = [ask(stream, added_text) for stream in streams]
        for stream in streams:
            stream.enqueue([EndOp()])
        added = await self._results(asked, on_error)
        for stream in streams:
            if stream.record is not None:
                stream.record.joined()
        return added

    def join_later(self, mode: str = GATHER, on_error: str = "raise") -> Promise[list[Added]]:
        """`join` that does not wait: what it brings is there when the promise is done.

        The state may go on meanwhile; what is appended to it comes after the forks' text.
        """
        self._begin_join(mode, on_error)
        streams, target = [state.stream for state in self.states], self.src_state.stream
        done: Promise[list[Added]] = Promise()
        names = self._new_names(streams, target) if mode != CONCATENATE else []
        variables = [Variable(name, None) for name in names]
        for variable in variables:
            target.variables.declare(variable)
        if mode != GATHER:
            target.enqueue([LateExtendOp(done, [stream.record for stream in streams])])
        loop.spawn(self._settle(on_error, variables, done))
        return done

    async def _settle(
        self, on_error: str, variables: list[Variable], done: Promise[list[Added]]
    ) -> None:
        streams = [state.stream for state in self.states]
        try:
            added = await self._ended(on_error)
            for variable in variables:
                assert variable.name is not None
                for found in of_each(variable.name, streams):
                    if found is not None:  # it may itself be what a join will bring
                        await found.ready().wait_async()
                values, variable.meta = gathered(variable.name, streams)
                self._note(variable, values)
                variable.promise.resolve(values)
        except Exception as error:
            failed = error  # a name that outlives the handler
            for variable in variables:
                variable.fail(lambda: failed)
            done.fail(lambda: failed)
            return
        done.resolve(added)

    async def _results(self, asked: list[Promise[Added]], on_error: str) -> list[Added]:
        if on_error == "cancel":
            for index, answer in enumerate(asked):
                cancel_others = functools.partial(self._cancel_others, index, answer)
                if not answer.when_done(cancel_others):
                    cancel_others()
        found: list[Added] = []
        errors: list[Exception] = []
        for answer in asked:
            try:
                found.append(await answer.wait_async())
            except Exception as error:  # noqa: PERF203 - each fork has an error of its own
                errors.append(error)
        if errors:
            # Those that were cancelled for a sibling's sake say less than the sibling itself.
            raise next((e for e in errors if not is_cancellation(e)), errors[0])
        return found

    def _cancel_others(self, index: int, answer: Promise[Added]) -> None:
        """Cancels all forks but one, where that one has failed."""
        try:
            answer.result()
        except Exception:
            failure = Failure.cancelled(f"fork {index} of its group failed")
            for other, state in enumerate(self.states):
                if other != index:
                    state.stream.cancel(failure)

    @staticmethod
    def _new_names(streams: list[Stream], target: Stream) -> list[str]:
        names: dict[str, None] = {}
        for stream in streams:
            for name in stream.variables:
                if name is not None and name not in target.variables:
                    names[name] = None
        return list(names)


def check_join(mode: str, on_error: str) -> None:
    """Raises UserInputError for a way to join that does not exist."""
    if mode not in JOIN_MODES:
        raise UserInputError(f"join mode is {mode!r}; {', '.join(JOIN_MODES)} are allowed.")
    if on_error not in ("raise", "cancel"):
        raise UserInputError(f"on_error is {on_error!r}; 'raise' or 'cancel' is allowed.")


def items_for(other: object, size: int) -> Sequence[object]:
    """What each of `size` forks gets of what was appended to their group."""
    if isinstance(other, (list, tuple)):
        if len(other) != size:
            raise UserInputError(
                f"a list of {len(other)} was appended to a group of {size} forks; "
                "one item for each fork is allowed."
            )
        return other
    if callable(other):
        function: Callable[[int], object] = other
        return [function(index) for index in range(size)]
    return [other] * size


def added_text(stream: Stream) -> Added:
    """What a fork has appended since it was made."""
    transcript = stream.transcript
    return (
        transcript.segments[stream.num_inherited_segments :],
        transcript.messages[stream.num_inherited_messages :],
    )


def of_each(name: str, streams: Sequence[Stream]) -> list[Variable | None]:
    """A variable in each fork, None where there is none."""
    return [stream.variables.get(name) for stream in streams]


def gathered(name: str, streams: Sequence[Stream]) -> tuple[list[Any], list[Any]]:
    """The value and the meta_info of a variable in each fork, None where there is none."""
    found = of_each(name, streams)
    values = [None if variable is None else variable.promise.result() for variable in found]
    return values, [None if variable is None else variable.meta for variable in found]


def is_cancellation(error: BaseException) -> bool:
    """True for an error that only says that its state was cancelled."""
    return isinstance(error, RequestCancelledError)
