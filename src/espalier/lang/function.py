"""`function`: turns a Python function whose first parameter is `s` into a program."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from espalier.errors import UserInputError
from espalier.lang import interpreter
from espalier.lang.abstract import active_tracer, holds_abstract, not_traceable
from espalier.lang.batch import BatchJob, OnResult, arun_batch, iterate_batch, run_batch
from espalier.lang.compilable import Compilable
from espalier.lang.compiled import AsProgram
from espalier.lang.limits import seconds
from espalier.lang.near import hint
from espalier.lang.options import OPTION_NAMES, RESERVED_NAMES, RunOptions, split_options
from espalier.lang.state import ProgramState
from espalier.types import whole_number

if TYPE_CHECKING:
    from espalier.plan.plan import Plan

Items = Sequence[Mapping[str, Any] | Sequence[Any]]
BATCH_NAMES = frozenset(
    (
        "num_threads",
        "progress_bar",
        "generator_style",
        "on_error",
        "on_result",
        "timeout",
        "item_timeout",
        "start_order",
    )
)
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class SglFunction(Compilable):
    """A program. Call it, or `run` it; `bind` fixes arguments.

    Every way to run takes, besides the program's own arguments, the options of reference section 2:
    `max_new_tokens=128, n=1, stop=None, stop_token_ids=None, temperature=1.0, top_p=1.0, top_k=-1,
    min_p=0.0, frequency_penalty=0.0, presence_penalty=0.0, ignore_eos=False, return_logprob=None,
    logprob_start_len=None, top_logprobs_num=None, return_text_in_logprobs=None, stream=False,
    backend=None, use_thread=True`, and Espalier's `seed=None, timeout=None, repetition_penalty=1.0,
    logit_bias=None` unless the program has a parameter of that name.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        bound: Mapping[str, Any] | None = None,
        num_api_spec_tokens: int | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.func = function
        self.num_api_spec_tokens = num_api_spec_tokens
        self.bound_arguments = dict(bound or {})
        self.signature = inspect.signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self._parameters = self._checked_parameters()
        takes_any = inspect.Parameter.VAR_KEYWORD
        self._own_names = frozenset(self._parameters)
        self._needed_names = frozenset(
            name
            for name, p in self.signature.parameters.items()
            if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ).difference("s")
        self._takes_any_keyword = any(
            p.kind is takes_any for p in self.signature.parameters.values()
        )

    def _checked_parameters(self) -> list[str]:
        names = list(self.signature.parameters)
        if not names or names[0] != "s":
            raise UserInputError(
                f"the first parameter of program {self.func.__name__!r} is "
                f"{names[0] if names else 'missing'!r}; it must be named 's', the state."
            )
        clashing = sorted(RESERVED_NAMES.intersection(names[1:]))
        if clashing:
            raise UserInputError(
                f"program {self.func.__name__!r} has a parameter named {', '.join(clashing)}, "
                "which is an option of run; give the parameter another name, such as "
                f"{clashing[0]}_value."
            )
        return names[1:]

    def __repr__(self) -> str:
        return f"<SglFunction {self.func.__name__}>"

    def bind(self, **kwargs: Any) -> SglFunction:
        """A program with these arguments fixed. An unknown or already fixed name: TypeError."""
        for name in kwargs:
            if name not in self._own_names and not self._takes_any_keyword:
                raise TypeError(
                    f"{self.func.__name__}() has no parameter {name!r} to bind; it has "
                    f"{', '.join(self._parameters) or 'none'}{hint(name, self._own_names)}."
                )
        self._refuse_bound(kwargs)
        bound = {**self.bound_arguments, **kwargs}
        return SglFunction(self.func, bound, self.num_api_spec_tokens)

    def _refuse_bound(self, kwargs: Mapping[str, Any]) -> None:
        again = sorted(set(kwargs).intersection(self.bound_arguments))
        if again:
            raise TypeError(
                f"{self.func.__name__}() got {', '.join(again)}, which bind has fixed already."
            )

    def _refuse_unknown(self, kwargs: Mapping[str, Any]) -> None:
        for name in kwargs:
            if name not in self._own_names and not self._takes_any_keyword:
                raise TypeError(
                    f"{self.func.__name__}() got an unexpected keyword argument {name!r}"
                    f"{hint(name, self._own_names | OPTION_NAMES)}"
                )

    def _arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Arguments:
        """The program's arguments with the bound ones; raises TypeError as a call would."""
        self._refuse_bound(kwargs)
        self._refuse_unknown(kwargs)
        merged = {**self.bound_arguments, **kwargs}
        if not args and self._needed_names.issubset(merged):
            return (), merged  # each name is known: no need to bind them as a call does
        try:
            self.signature.bind(None, *args, **merged)
        except TypeError as error:
            raise TypeError(f"{self.func.__name__}(): {error}") from None
        return tuple(args), merged

    def _launch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> interpreter.Launch:
        options, own = split_options(kwargs, self._own_names)
        return interpreter.launch(self.func, *self._arguments(args, own), options)

    def _as_program(self) -> AsProgram:
        return SglFunction

    def _checked_known(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return self.bind(**kwargs).bound_arguments

    def _traced(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A run of this program by one that is being traced."""
        names = {name: value for name, value in kwargs.items() if name not in self._own_names}
        if holds_abstract(names) and not self._takes_any_keyword:
            raise not_traceable(
                f"the program runs {self.func.__name__!r} with an option of a run that is known "
                "only when the program runs; give the option to its gens."
            )
        options, own = split_options(kwargs, self._own_names)
        if options.stream:
            raise not_traceable("the program runs another with stream=True, which has no graph.")
        unset = RunOptions()
        given = {
            entry.name: getattr(options, entry.name)
            for entry in fields(options)
            if getattr(options, entry.name) != getattr(unset, entry.name)
        }
        tracer = active_tracer.get()
        return tracer.run_program(self.func, self._arguments(args, own), given)

    def run(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Runs the program and returns its state when the body has returned.

        Generation may go on then; reading the state waits. With `stream=True` the body runs in a
        thread and this returns at once. An error of the body is raised here. `timeout` bounds the
        seconds of body and calls: then the calls are cancelled, and readers and the body's next
        read or append raise ProgramTimeoutError (a TimeoutError).
        """
        if active_tracer.get() is not None:
            traced: ProgramState = self._traced(args, kwargs)
            return traced
        return interpreter.run(self._launch(args, kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        """`run`. Inside another program the backend is that program's, unless one is given."""
        return self.run(*args, **kwargs)

    async def arun(self, *args: Any, **kwargs: Any) -> ProgramState:
        """Runs the program to its end (all calls finished) and returns its state.

        An `async def` body runs on the caller's event loop, a `def` body on a thread.
        """
        if active_tracer.get() is not None:
            traced: ProgramState = self._traced(args, kwargs)
            return traced
        return await interpreter.run_async(self._launch(args, kwargs))

    @overload
    def run_batch(
        self, batch_kwargs: Items, *, generator_style: Literal[False] = False, **options: Any
    ) -> list[ProgramState]: ...

    @overload
    def run_batch(
        self, batch_kwargs: Items, *, generator_style: Literal[True], **options: Any
    ) -> Generator[ProgramState, None, None]: ...

    def run_batch(
        self,
        batch_kwargs: Items,
        *,
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        on_error: str = "raise",
        on_result: OnResult | None = None,
        timeout: float | None = None,
        item_timeout: float | None = None,
        start_order: Sequence[int] | None = None,
        **options: Any,
    ) -> list[ProgramState] | Generator[ProgramState, None, None]:
        """Runs the program on each item: a dict of arguments, or a list of them in order.

        Returns finished states in the order of the items, as a list or (`generator_style`) as an
        iterator. At most `num_threads` items are at work at once. `on_error`: "raise" raises
        BatchError for the first failed item after all have ended; "return" returns its state,
        whose `error()` says why. `on_result(index, state)` is called as each item ends.
        `item_timeout` bounds the seconds of each item from its start, `timeout` those of the
        batch: what has not ended then fails with ProgramTimeoutError.
        `start_order`: the items by number, in the order in which they are to start.
        """
        job = self._job(
            batch_kwargs,
            options,
            item_timeout,
            num_threads=num_threads,
            on_error=on_error,
            on_result=on_result,
            progress_bar=progress_bar,
            start_order=None if start_order is None else tuple(start_order),
            timeout_s=seconds(timeout),
        )
        return iterate_batch(job) if generator_style else run_batch(job)

    async def arun_batch(
        self,
        batch_kwargs: Items,
        *,
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        on_error: str = "raise",
        on_result: OnResult | None = None,
        timeout: float | None = None,
        item_timeout: float | None = None,
        start_order: Sequence[int] | None = None,
        **options: Any,
    ) -> list[ProgramState]:
        """`run_batch` for async code; of async programs `num_threads` bounds the tasks."""
        job = self._job(
            batch_kwargs,
            options,
            item_timeout,
            num_threads=num_threads,
            on_error=on_error,
            on_result=on_result,
            progress_bar=progress_bar,
            start_order=None if start_order is None else tuple(start_order),
            timeout_s=seconds(timeout),
        )
        return await arun_batch(job)

    def plan(
        self,
        batch: Items = ({},),
        *,
        model: Any = None,
        cache_tokens: int | str | None = None,
        output_tokens: Any = None,
        assume: Mapping[str, Any] | None = None,
        prices: Any = None,
        on_error: str = "raise",
        **options: Any,
    ) -> Plan:
        """What running the program on a batch would cost; no model is run (docs/plan.md).

        `model`: as for Engine; its tokenizer and template are used. `cache_tokens`: size of the
        prefix cache, "unlimited", or None for what an engine on this machine would have.
        `output_tokens`: tokens of each answer, or a dict by variable ("*": of all others).
        `assume`: answers by variable; a list is taken in turn. `prices`: a JSON file, None for the
        example. `on_error`: "raise", or "return" to go on after a row that fails. `options` are
        those of `run`, such as max_new_tokens.
        """
        from espalier.lang.planning import PlanJob, checked_rows, run_plan

        run_options, rest = split_options(options, frozenset())
        if rest:
            raise TypeError(f"plan() got {', '.join(sorted(rest))}, which is no option of a run.")
        rows = checked_rows(self._checked_batch(batch), self._item, on_error)
        job = PlanJob(
            self.func,
            rows,
            run_options,
            self.is_async,
            model=model,
            cache_tokens=cache_tokens,
            output_tokens=output_tokens,
            assume=assume,
            prices=prices,
            on_error=on_error,
        )
        return run_plan(job)

    def _job(
        self,
        batch: Items,
        options: Mapping[str, Any],
        item_timeout: float | None,
        **settings: Any,
    ) -> BatchJob:
        if active_tracer.get() is not None:
            raise not_traceable("the program runs a batch, which has no graph; run its items.")
        self._checked_batch(batch)
        run_options, rest = split_options(options, frozenset())
        if rest:
            raise TypeError(
                f"run_batch() got {', '.join(sorted(rest))}, which is no option of a run"
                f"{hint(min(rest), BATCH_NAMES | OPTION_NAMES)}; arguments of the program belong "
                "into the items."
            )
        items = [self._item(index, item) for index, item in enumerate(batch)]
        run_options = replace(run_options, timeout_s=seconds(item_timeout, "item_timeout"))
        return BatchJob(self.func, items, run_options, self.is_async, **settings)

    @staticmethod
    def _checked_batch(batch: Items) -> Items:
        if isinstance(batch, (str, bytes, Mapping)) or not isinstance(batch, Sequence):
            raise UserInputError(
                f"the batch is of type {type(batch).__name__}; a list of dicts, or of lists or "
                "tuples of arguments in order, is allowed."
            )
        return batch

    def _item(self, index: int, item: Any) -> Arguments:
        try:
            if isinstance(item, Mapping):
                return self._arguments((), item)
            if isinstance(item, (list, tuple)):
                return self._arguments(item, {})
        except TypeError as error:
            raise TypeError(f"item {index} of the batch: {error}") from None
        raise UserInputError(
            f"item {index} of the batch is {item!r}; a dict of arguments, or a list or tuple of "
            "them in order, is allowed."
        )


@overload
def function(
    func: Callable[..., Any], *, num_api_spec_tokens: int | None = None
) -> SglFunction: ...


@overload
def function(
    func: None = None, num_api_spec_tokens: int | None = None
) -> Callable[[Callable[..., Any]], SglFunction]: ...


def function(
    func: Callable[..., Any] | None = None, num_api_spec_tokens: int | None = None
) -> SglFunction | Callable[[Callable[..., Any]], SglFunction]:
    """Makes a program of a `def` or `async def` function; with or without parentheses.

    Its first parameter must be named `s`. Raises UserInputError for that, and for a parameter
    named like an option of `run`. `num_api_spec_tokens` is a hint for API backends: how many tokens
    a call may write ahead of its stop, for the gens after it. Results do not depend on it, and a
    backend that pays nothing for another call has no use for it.
    """
    if num_api_spec_tokens is not None and (
        whole_number("num_api_spec_tokens", num_api_spec_tokens, UserInputError) < 1
    ):
        raise UserInputError(
            f"num_api_spec_tokens is {num_api_spec_tokens}; 1 or more, or None, is allowed."
        )
    if func is None:
        return lambda func: SglFunction(func, None, num_api_spec_tokens)
    return SglFunction(func, None, num_api_spec_tokens)
