"""The state that a program gets while it is traced: what it is told becomes nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from espalier.errors import ProgramError, UnknownVariableError, UnsupportedError, UserInputError
from espalier.lang.abstract import (
    Abstract,
    SglAnswer,
    SglDeferred,
    SglStateRef,
    SglVariable,
    need_known,
    not_traceable,
)
from espalier.lang.copy_scope import CopyScope
from espalier.lang.graph import (
    CALLS,
    AppendNode,
    AskNode,
    ForkItemNode,
    ForkNode,
    JoinNode,
    Node,
    SetNode,
    abstract_in,
)
from espalier.lang.group import CONCATENATE, GATHER, check_join, items_for
from espalier.lang.ir import (
    SglConstantText,
    SglExpr,
    SglExprList,
    SglGen,
    SglReasoning,
    SglReasoningVariable,
    SglRoleBegin,
    SglRoleEnd,
    SglSelect,
    SglVarScopeBegin,
    SglVarScopeEnd,
)
from espalier.lang.location import call_site
from espalier.lang.separation import parts_to_append
from espalier.lang.writing import VariableScope, Writer, changed_role

MAX_TRACED_FORKS = 65_536
MAX_SAMPLES = 65_536  # more are refused where the call is made
_CONSTANTS = (SglConstantText, SglRoleBegin, SglRoleEnd)


_PLAIN = (str, bytes, int, float, bool, type(None))


def kept_value(value: Any, what: str = "returns") -> Any:
    """A value as the graph keeps it: plain values, lists, tuples, dicts, states by number."""
    if isinstance(value, TracedState):
        return SglStateRef(value.number)
    if type(value) in (list, tuple):
        return type(value)(kept_value(item, what) for item in value)
    if type(value) is dict:
        return {key: kept_value(item, what) for key, item in value.items()}
    if isinstance(value, (*_PLAIN, Abstract)):
        return value
    if isinstance(value, SglExprList) and not any(abstract_in(value)):
        return value
    raise not_traceable(
        f"the program {what} a {type(value).__name__}; plain values, lists, tuples and dicts of "
        "them, and states are allowed where it is traced."
    )


class NodeLog(Protocol):
    """What a traced state needs of the tracer that it belongs to."""

    states: list[TracedState]

    def add(self, node: Node, *, is_constant: bool = False) -> int:
        """Records a node and returns its number."""
        ...

    def new_state(self, parent: TracedState | None = None) -> TracedState:
        """Another state, a fork of `parent` where it is given."""
        ...


class TracedState(Writer):
    """A state of a program that is being traced; it has the members of a ProgramState.

    Attributes:
        number: its number in the graph.
        variables: name -> what a read gives: abstract, a list of such, or a value that was set.
        ret_value: what the body returned, of a program that the traced one runs.
    """

    def __init__(self, tracer: NodeLog, number: int, parent: TracedState | None = None) -> None:
        self.tracer, self.number = tracer, number
        self.variables: dict[str | None, Any] = {} if parent is None else dict(parent.variables)
        self.open_role: str | None = None if parent is None else parent.open_role
        self.parent = parent
        self.scopes: list[tuple[str, int]] = []  # name and node of each open scope
        self.joined = False
        self.ret_value: Any = None

    # Writing.

    def __iadd__(self, other: object) -> TracedState:
        self._append(other)
        return self

    def _append(self, value: object) -> None:
        self._check_writable()
        for part in parts_to_append(value):
            self._add(part)

    def _add(self, part: SglExpr) -> None:
        if isinstance(part, SglConstantText) and not part.value:
            return
        if isinstance(part, (SglRoleBegin, SglRoleEnd)):
            self.open_role = changed_role(self.open_role, part)
        if isinstance(part, SglVarScopeEnd):
            self._end_scope(part)
        place = part.location if isinstance(part, CALLS) else call_site()
        node = AppendNode(self.number, part, place)
        index = self.tracer.add(node, is_constant=isinstance(part, _CONSTANTS))
        if isinstance(part, SglVarScopeBegin):
            self.scopes.append((part.name, index))
            self.variables[part.name] = SglVariable(part.name, index)
        if isinstance(part, CALLS):
            self._declare(part, index)
        if isinstance(part, SglReasoningVariable):
            answer = self.variables[part.answer]
            num_samples = len(answer) if isinstance(answer, list) else None
            self.variables[part.name] = _read(part.name, index, num_samples)

    def _declare(self, call: SglGen | SglReasoning | SglSelect | SglDeferred, index: int) -> None:
        name = call.name
        if name is not None and not isinstance(name, str):
            raise not_traceable("the name of a variable is known only when the program runs.")
        if isinstance(call, SglReasoning):
            call = call.gen
        given = call.sampling if isinstance(call, SglGen) else {}
        if isinstance(call, SglDeferred):
            given = call.arguments
        num_samples = given.get("n")
        self.variables[name] = _read(name, index, num_samples)

    def _end_scope(self, part: SglVarScopeEnd) -> None:
        if not self.scopes or self.scopes[-1][0] != part.name:
            innermost = repr(self.scopes[-1][0]) if self.scopes else "none"
            raise ProgramError(
                f"var_scope {part.name!r} ends while {innermost} is the innermost open one."
            )
        self.scopes.pop()

    def _check_writable(self) -> None:
        if self.joined:
            raise ProgramError(
                "this fork has been joined; append to the state that it came from instead."
            )

    def _may_close_role(self, role: str) -> bool:
        return self.open_role == role and not self.joined

    def _may_close_scope(self, name: str) -> bool:
        return bool(self.scopes) and self.scopes[-1][0] == name

    def check_ended(self) -> None:
        """Raises ProgramError where a scope was left open."""
        if self.scopes:
            raise ProgramError(f"var_scope {self.scopes[-1][0]!r} was begun and never ended.")

    # Reading.

    def named_variables(self) -> dict[str, Any]:
        """The variables that have a name."""
        return {name: value for name, value in self.variables.items() if name is not None}

    def __getitem__(self, name: str) -> Any:
        need_known(name, "reads a variable by")
        try:
            found = self.variables[name]
        except KeyError:
            known = ", ".join(sorted(map(repr, self.named_variables()))) or "no variables"
            raise UnknownVariableError(
                f"no variable {name!r}: nothing that was submitted to this state sets it. "
                f"It has {known}."
            ) from None
        if isinstance(found, SglVariable) and found.node in self._open_scopes():
            raise ProgramError(
                f"variable {name!r} was read inside its own var_scope block, which sets it at its "
                "end; read it after the block."
            )
        return found

    def _open_scopes(self) -> set[int]:
        """The nodes whose scopes are open here or in a state that this one was forked from."""
        state: TracedState | None = self
        found: set[int] = set()
        while state is not None:
            found.update(node for _, node in state.scopes)
            state = state.parent
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self.variables

    def get_var(self, name: str, timeout: float | None = None) -> Any:
        """A variable's value, abstract or set."""
        return self[name]

    async def aget(self, name: str) -> Any:
        """`get_var` for async programs."""
        return self[name]

    def set_var(self, name: str, value: Any) -> None:
        """Sets a variable."""
        need_known(name, "sets a variable by")
        if not isinstance(name, str):
            raise UserInputError(f"the variable name is {name!r}; text is allowed.")
        self._check_writable()
        self.tracer.add(SetNode(self.number, name, kept_value(value, "sets a variable to")))
        self.variables[name] = value

    def _ask(self, what: str, name: str | None = None) -> SglAnswer:
        if name is not None:
            _ = self[name]  # raises where there is none
        return SglAnswer(what, self.tracer.add(AskNode(self.number, what, name)))

    def text(self, name: str | None = None) -> Any:
        """The text, known when the program runs."""
        return self._ask("text", name)

    def messages(self) -> Any:
        """The messages, known when the program runs."""
        return self._ask("messages")

    def usage(self, name: str | None = None) -> Any:
        """The usage, known when the program runs."""
        return self._ask("usage", name)

    def get_meta_info(self, name: str) -> Any:
        """The meta_info, known when the program runs."""
        return self._ask("meta", name)

    def sync(self) -> None:
        """Waits when the program runs."""
        self._ask("sync")

    async def atext(self, name: str | None = None) -> Any:
        """`text` for async programs."""
        return self.text(name)

    async def amessages(self) -> Any:
        """`messages` for async programs."""
        return self.messages()

    async def ausage(self, name: str | None = None) -> Any:
        """`usage` for async programs."""
        return self.usage(name)

    async def aget_meta_info(self, name: str) -> Any:
        """`get_meta_info` for async programs."""
        return self.get_meta_info(name)

    async def afinish(self) -> None:
        """`sync` for async programs."""
        self.sync()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise not_traceable(
            f"the program uses s.{name}, which depends on how it runs and cannot be traced."
        )

    def __repr__(self) -> str:
        return f"<TracedState {self.number}>"

    def __str__(self) -> str:
        raise not_traceable(
            "the program turns a state into text, which is known only when it runs; append "
            "s.text() instead."
        )

    def var_scope(self, name: str) -> VariableScope:
        """A `with` block; the text appended inside becomes the variable at its end."""
        need_known(name, "sets a variable by")
        return super().var_scope(name)

    # Forks and programs.

    def fork(self, size: int = 1, position_ids_offset: None = None) -> TracedGroup:
        """`size` copies that go on from here."""
        if position_ids_offset is not None:
            raise UnsupportedError(
                "position_ids_offset has no effect on any backend; leave it out."
            )
        need_known(size, "forks by")
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_TRACED_FORKS:
            raise UserInputError(f"fork size is {size!r}; 0 to {MAX_TRACED_FORKS} is allowed.")
        self._check_writable()
        first = len(self.tracer.states)
        numbers = tuple(range(first, first + size))
        fork = self.tracer.add(ForkNode(self.number, numbers))
        children = [self.tracer.new_state(self) for _ in numbers]
        for index, number in enumerate(numbers):
            self.tracer.add(ForkItemNode(number, fork, index))
        return TracedGroup(children, self)

    def copy(self) -> CopyScope[TracedState]:
        """A `with` block whose target is a fork of one, joined at its end."""
        return CopyScope(self.fork, lambda _: None)  # a graph has nothing to cancel


class TracedGroup:
    """Forks of one traced state, with the members of a ProgramStateGroup."""

    def __init__(self, states: list[TracedState], source: TracedState) -> None:
        self.states = states
        self.src_state = source

    def __getitem__(self, index: int) -> TracedState:
        return self.states[index]

    def __setitem__(self, index: int, state: TracedState) -> None:
        if self.states[index] is not state:
            raise ProgramError("a fork of a group cannot be replaced; append to it instead.")

    def __len__(self) -> int:
        return len(self.states)

    def __iter__(self) -> Iterator[TracedState]:
        return iter(self.states)

    def __iadd__(self, other: object) -> TracedGroup:
        for state, item in zip(self.states, items_for(other, len(self.states)), strict=True):
            state._append(item)
        return self

    def join(self, mode: str = GATHER, on_error: str = "raise") -> None:
        """Brings the forks' results into the state that they came from."""
        check_join(mode, on_error)
        target = self.src_state
        target._check_writable()
        for state in self.states:
            state._check_writable()
            state.check_ended()
        names = tuple(self._new_names()) if mode != CONCATENATE else ()
        numbers = tuple(state.number for state in self.states)
        target.tracer.add(JoinNode(target.number, numbers, mode, on_error, names))
        for state in self.states:
            state.joined = True
        for name in names:
            target.variables[name] = [state.variables.get(name) for state in self.states]

    async def ajoin(self, mode: str = GATHER, on_error: str = "raise") -> None:
        """`join` for async programs."""
        self.join(mode, on_error)

    def _new_names(self) -> dict[str, None]:
        known = self.src_state.variables
        return {
            name: None
            for state in self.states
            for name in state.named_variables()
            if name not in known
        }


def _read(name: str | None, node: int, num_samples: object) -> Any:
    """What reading a variable that a node sets gives: a list for several samples, where known."""
    if not isinstance(num_samples, int) or not 1 < num_samples <= MAX_SAMPLES:
        return SglVariable(name, node)
    return [SglVariable(name, node, (sample,)) for sample in range(num_samples)]
