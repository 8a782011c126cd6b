"""Compiled programs: a graph after its passes, run by the machinery of all programs.

Reference section 12.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from espalier.errors import TraceError, UserInputError
from espalier.lang.abstract import active_tracer, not_traceable
from espalier.lang.batch import GENERATOR_WINDOW
from espalier.lang.batch_prefix import BatchPrefix, batch_order, beginning
from espalier.lang.config import global_config
from espalier.lang.execution import execute
from espalier.lang.graph import Graph, Node
from espalier.lang.graph_json import graph_to_json
from espalier.lang.output_state import OutputState
from espalier.lang.passes.drop_dead import drop_dead
from espalier.lang.passes.merge_constants import merge_constants
from espalier.lang.passes.note import Note
from espalier.lang.passes.share_fork_prefixes import share_fork_prefixes
from espalier.lang.passes.submit_together import submit_together
from espalier.lang.state import ProgramState
from espalier.lang.suggest import Suggestion, suggestions

CountTokens = Callable[[str], int]


class Runs(Protocol):
    """What runs a body as a program; see lang.function.SglFunction."""

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Runs it once."""
        ...

    async def arun(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Runs it once, awaited."""
        ...

    def run_batch(self, batch_kwargs: Any, **options: Any) -> Any:
        """Runs it on each item."""
        ...

    async def arun_batch(self, batch_kwargs: Any, **options: Any) -> list[ProgramState]:
        """Runs it on each item, awaited."""
        ...


AsProgram = Callable[[Callable[..., Any]], Runs]


def optimised(graph: Graph, outputs: Sequence[str] | None) -> tuple[Graph, tuple[Note, ...]]:
    """The graph after all passes, and what they did."""
    notes: list[Note] = []
    passes: list[Callable[[Graph], Any]] = [merge_constants, share_fork_prefixes, submit_together]
    if outputs is not None:
        if isinstance(outputs, str) or not outputs:
            raise UserInputError(
                f"outputs is {outputs!r}; a list of names of variables is allowed, or None."
            )
        names = tuple(outputs)
        passes.insert(0, lambda before: drop_dead(before, names))
    for apply in passes:
        done = apply(graph)
        graph = done.graph
        notes += done.notes
    return graph, tuple(notes)


class CompiledFunction:
    """A program that was traced and compiled; it runs as the program does, with keyword arguments.

    Attributes:
        graph: what runs.
        source: the graph as it was traced.
        notes: what the passes changed.
    """

    def __init__(
        self,
        source: Graph,
        as_program: AsProgram,
        outputs: Sequence[str] | None = None,
        backend: Any = None,
    ) -> None:
        self.source = source
        self.graph, self.notes = optimised(source, outputs)
        self._as_program = as_program
        self._backend = backend
        self._interpreted: Callable[..., Any] | None = None
        self._program = as_program(self._body(None))

    @classmethod
    def of_part(
        cls,
        error: TraceError,
        function: Callable[..., Any],
        known: Mapping[str, Any],
        as_program: AsProgram,
        backend: Any,
    ) -> CompiledFunction:
        """A program of which only the beginning is known: it is interpreted."""
        assert isinstance(error.graph, Graph)
        found = cls(error.graph, as_program, None, backend)
        found.notes = (Note("interpret", f"only the part before this could be traced: {error}"),)
        found._interpreted = partial(function, **known)
        found._program = as_program(found._body(None))
        return found

    def _body(self, prefix: BatchPrefix | None) -> Callable[..., Any]:
        graph, interpreted = self.graph, self._interpreted

        def body(s: ProgramState, **arguments: Any) -> Any:
            if active_tracer.get() is not None:
                raise not_traceable(
                    f"the program runs the compiled program {graph.program!r}, which cannot be "
                    "traced; run the program that was compiled instead."
                )
            if prefix is not None:
                prefix.attach(s.stream)
            if interpreted is not None:
                return interpreted(s, **arguments)
            return execute(graph, s, {**graph.defaults, **arguments})

        async def async_body(s: ProgramState, **arguments: Any) -> Any:
            return await body(s, **arguments)

        if inspect.iscoroutinefunction(interpreted):
            return self._with_signature(async_body)
        return self._with_signature(body)

    def _with_signature(self, body: Callable[..., Any]) -> Callable[..., Any]:
        graph = self.graph
        kinds = inspect.Parameter
        body.__name__ = graph.program
        body.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [kinds("s", kinds.POSITIONAL_OR_KEYWORD)]
            + [
                kinds(name, kinds.KEYWORD_ONLY, default=graph.defaults.get(name, kinds.empty))
                for name in graph.arguments
            ]
        )
        return body

    @property
    def nodes(self) -> list[Node]:
        """The nodes in an order in which each comes after those that it needs."""
        return list(self.graph.nodes)

    def print_graph(self) -> None:
        """Prints the graph."""
        print(self.graph)

    def run(self, **kwargs: Any) -> ProgramState:
        """Runs the program; takes its arguments and all options of a run by name."""
        return self._shown(self._program.run(**self._with_backend(kwargs)))

    def _with_backend(self, options: Mapping[str, Any]) -> dict[str, Any]:
        return dict(options) if self._backend is None else {"backend": self._backend, **options}

    def __call__(self, **kwargs: Any) -> ProgramState:
        """`run`."""
        return self.run(**kwargs)

    async def arun(self, **kwargs: Any) -> ProgramState:
        """Runs the program to its end."""
        return self._shown(await self._program.arun(**self._with_backend(kwargs)))

    def run_batch(self, batch_kwargs: Sequence[Mapping[str, Any]], **options: Any) -> Any:
        """Runs the program on each item, a dict; takes the options of `SglFunction.run_batch`.

        What all items begin with is computed once; items start in the order of their prefix tree.
        Results are in the order of the items.
        """
        program, options = self._for_batch(batch_kwargs, options)
        states = program.run_batch(batch_kwargs, **options)
        if isinstance(states, list):
            return [self._shown(state) for state in states]
        return self._each_shown(states)

    async def arun_batch(
        self, batch_kwargs: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[ProgramState]:
        """`run_batch` for async code."""
        program, options = self._for_batch(batch_kwargs, options)
        states = await program.arun_batch(batch_kwargs, **options)
        return [self._shown(state) for state in states]

    def _for_batch(
        self, items: Sequence[Mapping[str, Any]], options: Mapping[str, Any]
    ) -> tuple[Runs, dict[str, Any]]:
        """The program and options for a batch of these items."""
        on_result = options.get("on_result")
        if callable(on_result):
            options = {
                **options,
                "on_result": lambda index, state: on_result(index, self._shown(state)),
            }
        known = set(self.graph.arguments)
        if not isinstance(items, (list, tuple)) or not all(
            isinstance(item, Mapping) and known.issuperset(item) for item in items
        ):
            return self._program, self._with_backend(
                options
            )  # it refuses the items, and says what is wrong
        missing = known.difference(self.graph.defaults)
        if any(missing.difference(item) for item in items):
            return self._program, self._with_backend(options)
        beginnings = [beginning(self.graph, {**self.graph.defaults, **item}) for item in items]
        windowed = options.get("generator_style", False)
        window = GENERATOR_WINDOW if windowed else max(1, len(items))
        given = {"start_order": batch_order(beginnings, window), **self._with_backend(options)}
        shared = beginnings if global_config.enable_precache_with_tracing else []
        return self._as_program(self._body(BatchPrefix(shared))), given

    def _shown(self, state: ProgramState) -> ProgramState:
        outputs = self.graph.outputs
        return state if outputs is None else OutputState(state, outputs)

    def _each_shown(self, states: Iterator[ProgramState]) -> Iterator[ProgramState]:
        for state in states:
            yield self._shown(state)

    def to_json(self) -> dict[str, Any]:
        """The graph before its passes, as JSON values; raises UserInputError where it has none."""
        return graph_to_json(self.source)

    def explain(self, count_tokens: CountTokens | None = None) -> str:
        """What the passes did, and the tokens that it saves.

        Args:
            count_tokens: counts the tokens of a text, as `len(tokenizer.encode(text))` does; words
                are counted without it.
        """
        counts, unit = (count_tokens, "tokens") if count_tokens else (_words, "words")
        lines = [f"{self.graph.program}: {len(self.graph.calls)} calls of {len(self.source.calls)}"]
        for note in self.notes:
            saved = counts(note.text) * note.times
            lines.append(f"  {note.passed}: {note.message}")
            if saved:
                lines.append(f"    saves {saved} {unit}, if nothing else had cached them")
        if not self.notes:
            lines.append("  nothing to change")
        return "\n".join(lines)

    def suggest(
        self, batch_kwargs: Sequence[Mapping[str, Any]], count_tokens: CountTokens | None = None
    ) -> list[Suggestion]:
        """Rewrites of the program that would share more; none is applied. See lang/suggest.py."""
        return suggestions(self.graph, batch_kwargs, count_tokens or _words)


def _words(text: str) -> int:
    return len(text.split())
