"""Tracing, compiling and caching: what can be done with a program besides running it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from espalier.backends.base import Backend
from espalier.errors import TraceError
from espalier.lang import loop
from espalier.lang.batch_prefix import beginning
from espalier.lang.chat_template import template_for_model
from espalier.lang.compiled import AsProgram, CompiledFunction
from espalier.lang.config import chosen_backend
from espalier.lang.ir import SglConstantText
from espalier.lang.program import refuse_blocking
from espalier.lang.tracer import TracedProgram, trace_constants, trace_function
from espalier.lang.transcript import Transcript, extended
from espalier.types import Prompt

LOG = logging.getLogger("espalier.lang")


class Compilable:
    """What a program offers besides runs; mixed into SglFunction."""

    func: Callable[..., Any]
    bound_arguments: dict[str, Any]

    def _as_program(self) -> AsProgram:
        """What makes a program of a body."""
        raise NotImplementedError

    def _checked_known(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments that are known while tracing; raises TypeError for names that do not exist."""
        raise NotImplementedError

    def trace(self, *, backend: Any = None, **kwargs: Any) -> TracedProgram:
        """The graph of the program; arguments that are not given are abstract.

        No model and no template is needed: `backend` is taken for the reference's sake. A parameter
        whose default is None, True or False keeps it, unless it is given.
        Raises TraceError, which names the line, where the program's course depends on a value that
        is not known; its `graph` is what comes before.
        """
        return TracedProgram(trace_function(self.func, self._checked_known(kwargs)))

    def compile(
        self,
        *,
        backend: Any = None,
        outputs: Sequence[str] | None = None,
        partial: bool = False,
        **kwargs: Any,
    ) -> CompiledFunction:
        """The program as a graph that runs: same texts, variables and messages, fewer waits.

        Args:
            backend: of its runs, where none is given to them.
            outputs: variables that are wanted: generations that they do not need are dropped, and
                nothing else can be read.
            partial: where not all of the program can be traced, use what comes before (what a batch
                begins with) and interpret the program itself, instead of raising TraceError.
            kwargs: arguments that are fixed; the others are arguments of the compiled program.
        """
        known = self._checked_known(kwargs)
        try:
            graph = trace_function(self.func, known)
        except TraceError as error:
            if not partial or outputs is not None:
                raise
            return CompiledFunction.of_part(error, self.func, known, self._as_program(), backend)
        return CompiledFunction(graph, self._as_program(), outputs, backend)

    def cache(self, backend: Any = None) -> int:
        """Computes what every run begins with, so that runs find it cached; returns its tokens.

        The body runs up to the first line that needs a value or a model. What it raises before that
        is logged, and what came before is cached all the same.
        """
        refuse_blocking("cache()", "await f.acache()")
        chosen = chosen_backend(backend)
        return loop.run_blocking(_prefill(chosen, self.constant_prompt(chosen)))

    async def acache(self, backend: Any = None) -> int:
        """`cache` for async code."""
        chosen = chosen_backend(backend)
        return await _prefill(chosen, self.constant_prompt(chosen))

    def constant_prompt(self, backend: Backend) -> Prompt:
        """The constants and roles that every run begins with."""
        graph, error = trace_constants(self.func, self.bound_arguments)
        if error is not None:
            LOG.warning(
                "%s: the body raised while its constant beginning was traced",
                self.func.__name__,
                exc_info=error,
            )
        exprs = beginning(graph, {})
        if not any(isinstance(expr, SglConstantText) for expr in exprs):
            return ()
        template = partial(template_for_model, backend.model_name, backend.role_template)
        return extended(Transcript(), exprs, template)


async def _prefill(backend: Backend, prompt: Prompt) -> int:
    return (await backend.prefill(prompt)).prompt_tokens if prompt else 0
