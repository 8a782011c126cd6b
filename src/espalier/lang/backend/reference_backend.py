"""A user's backend in the reference's form, as a backend of this language.

Its blocking methods run on at most 64 threads for all such backends; what a method itself calls of
other such backends runs on 64 others, so that it never waits for its own thread. A call that is
cancelled is no longer waited for: it is not begun, or its thread ends when the method returns.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeVar

from espalier.backends.base import (
    Chat,
    ChoiceScores,
    ChooseCall,
    Chosen,
    GenerateCall,
    GenerateResult,
    OnDelta,
    RoleTemplate,
    Sample,
    ScoreCall,
)
from espalier.constraint import Constraint, ConstraintKind
from espalier.errors import BackendError, CapacityError, UnsupportedError, shown
from espalier.lang.backend.base_backend import BaseBackend
from espalier.lang.chat_template import ChatTemplate
from espalier.lang.choices import ChoicesDecision
from espalier.lang.executor import StreamExecutor
from espalier.lang.reference_sampling import SglSamplingParams
from espalier.lang.workers import Crew
from espalier.types import Prompt, SamplingParams, Usage, prompt_text

T = TypeVar("T")
MAX_THREADS = 64  # of all calls to such backends
_CONSTRAINTS = {
    ConstraintKind.DTYPE: "dtype",
    ConstraintKind.REGEX: "regex",
    ConstraintKind.JSON_SCHEMA: "json_schema",
}
# Fields of SamplingParams that the reference has no name for, with the value that says nothing.
_UNNAMED: dict[str, Any] = {
    "repetition_penalty": 1.0,
    "logit_bias": {},
    "sampling_seed": None,
    "skip_special_tokens": True,
    "no_stop_trim": False,
}
_UNTOLD = ("prompt_tokens", "completion_tokens", "cached_tokens", "forced_tokens", "finish_reason")

_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_ENDED = object()  # in place of a piece of a stream

# How many methods of such backends the code here runs inside of, and the threads for each depth.
_depth: contextvars.ContextVar[int] = contextvars.ContextVar("espalier_backend_depth", default=0)
_crews: dict[int, Crew] = {}
_lock = threading.Lock()


def _threads(depth: int) -> Crew:
    with _lock:
        crew = _crews.get(depth)
        if crew is None:
            crew = Crew(MAX_THREADS)
            if crew.size == 0:
                raise CapacityError(
                    f"there are no threads left for a backend that is called {depth} deep inside "
                    "methods of others; let some programs end, or nest fewer backends."
                )
            _crews[depth] = crew
        return crew


class ReferenceBackend:
    """Runs calls on a BaseBackend; see backends.base.Backend."""

    reads_chat = True

    def __init__(self, inner: BaseBackend) -> None:
        self.inner = inner

    @property
    def model_name(self) -> str:
        """What the backend says."""
        return str(self.inner.get_model_name())

    def role_template(self) -> RoleTemplate:
        """The backend's chat template; raises BackendError for anything else."""
        return self._template()

    def _template(self) -> ChatTemplate:
        template = self.inner.get_chat_template()
        if not isinstance(template, ChatTemplate):
            raise BackendError(
                f"get_chat_template of {self.model_name} returned {shown(template)}; a "
                "ChatTemplate is allowed, such as get_chat_template('chatml') gives."
            )
        return template

    async def generate(self, call: GenerateCall, on_delta: OnDelta | None = None) -> GenerateResult:
        """Calls `generate`, or `generate_stream` where somebody reads along and it is there."""
        params = reference_params(call)
        view = self._view(call.prompt, call.chat, is_streamed=on_delta is not None)
        if on_delta is not None and call.sampling.n == 1 and self._overrides("generate_stream"):
            text, meta = await self._stream(view, params, on_delta)
        else:
            answer = await self._on_thread(lambda: self.inner.generate(view, params))
            text, meta = _pair("generate", answer)
        samples = _samples(text, meta, call.sampling.n)
        return GenerateResult(samples, _usage([sample.meta_info for sample in samples]))

    async def _stream(
        self, view: StreamExecutor, params: SglSamplingParams, on_delta: OnDelta
    ) -> tuple[str, Any]:
        pieces = await self._on_thread(lambda: iter(self.inner.generate_stream(view, params)))
        texts: list[str] = []
        meta: Any = None
        while True:
            piece: Any = await self._on_thread(lambda: next(pieces, _ENDED))
            if piece is _ENDED:
                return "".join(texts), meta
            text, meta = _pair("generate_stream", piece)
            if not isinstance(text, str):
                raise BackendError(f"generate_stream gave {shown(text)}; a piece of text belongs.")
            texts.append(text)
            on_delta(0, text, _full_meta(meta))

    async def choose(self, call: ChooseCall) -> Chosen:
        """Calls `select`."""
        view = self._view(call.prompt, call.chat)
        found = await self._on_thread(
            lambda: self.inner.select(view, list(call.choices), call.temperature, call.method)
        )
        if not isinstance(found, ChoicesDecision):
            # Older backends return a tuple that begins with the choice and its scores.
            if not isinstance(found, (tuple, list)) or not found:
                raise BackendError(
                    f"select of {self.model_name} returned {shown(found)}; a ChoicesDecision is "
                    "allowed."
                )
            decision, *rest = found
            scores = {"normalized_prompt_logprobs": rest[0]} if rest else {}
            found = ChoicesDecision(decision, scores)
        if found.decision not in call.choices:
            raise BackendError(
                f"{self.model_name} chose {shown(found.decision)}, which is none of "
                f"{list(call.choices)!r}."
            )
        meta = _full_meta(found.meta_info)
        return Chosen(found.decision, meta, _usage([meta]))

    async def score(self, call: ScoreCall) -> ChoiceScores:
        """Raises UnsupportedError: such a backend chooses by itself."""
        raise UnsupportedError(f"{self.model_name} gives no scores; it has `select`.")

    async def prefill(self, prompt: Prompt) -> Usage:
        """Calls `cache_prefix` where that is overridden, else `commit_lazy_operations`."""
        text = prompt_text(prompt)
        if self._overrides("cache_prefix"):
            await self._on_thread(lambda: self.inner.cache_prefix(text))
        elif self._overrides("commit_lazy_operations"):
            view = self._view(prompt, None)
            await self._on_thread(lambda: self.inner.commit_lazy_operations(view))
        return Usage()

    def begin_program(self, state_id: str) -> None:
        """Tells the backend that a program begins."""
        if self._overrides("begin_program"):
            self.inner.begin_program(self._view((), Chat(state_id=state_id)))

    def end_program(self, state_id: str) -> None:
        """Tells the backend that a program's body has ended."""
        if self._overrides("end_program"):
            self.inner.end_program(self._view((), Chat(state_id=state_id)))

    def flush_cache(self) -> bool:
        """What the backend says; nothing counts as done."""
        return self.inner.flush_cache() is not False

    def server_info(self) -> dict[str, Any]:
        """What the backend tells, with its name."""
        return {"model": self.model_name, **(self.inner.get_server_info() or {})}

    def shutdown(self) -> None:
        """Ends the backend."""
        self.inner.shutdown()

    def _overrides(self, name: str) -> bool:
        return getattr(type(self.inner), name) is not getattr(BaseBackend, name)

    async def _on_thread(self, function: Callable[[], T]) -> T:
        """Runs a method on a thread; what it raises that is no Exception comes as BackendError."""
        depth = _depth.get() + 1
        is_wanted = True

        def job() -> T:
            if not is_wanted:
                raise BackendError("the call was cancelled before it began.")
            _depth.set(depth)
            try:
                return function()
            except BaseException as error:
                if isinstance(error, Exception) and not isinstance(error, StopIteration):
                    raise
                name = type(error).__name__
                raise BackendError(f"the backend raised {name}: {error}".rstrip(": ")) from error

        try:
            return await _threads(depth).run(job).wait_async()
        except asyncio.CancelledError:
            is_wanted = False
            raise

    def _view(
        self, prompt: Prompt, chat: Chat | None, *, is_streamed: bool = False
    ) -> StreamExecutor:
        """The prompt as the reference's backends see it; raises for text that would be dropped."""
        template = self._template()
        view = StreamExecutor(self.inner, {}, None, template, is_streamed, use_thread=False)
        view.text_ = prompt_text(prompt)
        if chat is not None:
            view.sid = chat.state_id or view.sid
            full = template.with_default(chat.messages, chat.open_role)
            view.messages_ = [dict(message) for message in full]
            view.cur_role = chat.open_role
            if chat.open_role is not None:
                view.cur_role_begin_pos = len(view.text_) - len(chat.open_text)
            self._check_chat(chat, view.text_)
        return view

    def _check_chat(self, chat: Chat, text: str) -> None:
        inner = self.inner
        if not inner.is_chat_model or not text:
            return
        if chat.open_role != "assistant":
            raise UnsupportedError(
                f"{self.model_name} is a chat model; put the gen into an assistant block."
            )
        if chat.open_text and not inner.supports_prefill:
            raise UnsupportedError(
                f"{self.model_name} is a chat model and takes no beginning of its answer; "
                f"{shown(chat.open_text)} stands before the gen in the assistant block. Move it "
                "into a message of the user, or set supports_prefill where the backend sends it."
            )


def reference_params(call: GenerateCall) -> SglSamplingParams:
    """A call's values in the reference's form; raises UnsupportedError for what has none."""
    given = {
        name: getattr(call.sampling, name)
        for name in SamplingParams.__dataclass_fields__
        if name not in _UNNAMED
    }
    for name, nothing in _UNNAMED.items():
        if getattr(call.sampling, name) != nothing:
            raise UnsupportedError(
                f"{name} was given, which a backend in the reference's form cannot be told; leave "
                "it out (no_stop_trim comes from include_stop, and from separate_reasoning where "
                "the gen has stops or a form)."
            )
    if call.logprobs.return_logprob:
        given.update(
            return_logprob=True,
            logprob_start_len=call.logprobs.logprob_start_len,
            top_logprobs_num=call.logprobs.top_logprobs_num,
            return_text_in_logprobs=call.logprobs.return_text_in_logprobs,
        )
    return SglSamplingParams(**given, **_constraint(call.constraint))


def _constraint(constraint: Constraint | None) -> dict[str, Any]:
    if constraint is None:
        return {}
    name = _CONSTRAINTS.get(constraint.kind)
    if name is None:
        raise UnsupportedError(
            f"{constraint.kind.value} was given, which a backend in the reference's form cannot be "
            f"told; {', '.join(_CONSTRAINTS.values())} are allowed."
        )
    return {name: constraint.text}


def _full_meta(meta: Any) -> dict[str, Any]:
    """A backend's meta_info, with None for what it does not tell; raises BackendError."""
    if meta is None:
        meta = {}
    if not isinstance(meta, Mapping):
        raise BackendError(f"the backend's meta_info is {shown(meta)}; a dict is allowed.")
    for name in _COUNTS:
        count = meta.get(name)
        if count is not None and (not isinstance(count, Integral) or count < 0):
            raise BackendError(
                f"the backend's meta_info has {name}={shown(count)}; a whole number from 0, or "
                "None, is allowed."
            )
    return {**dict.fromkeys(_UNTOLD), **meta}


def _pair(method: str, answer: Any) -> tuple[Any, Any]:
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise BackendError(
            f"{method} of the backend gave {shown(answer)}; a pair of a text and its meta_info "
            "(a dict) is allowed."
        )
    text, meta = answer
    return text, meta


def _samples(text: Any, meta: Any, num_samples: int) -> tuple[Sample, ...]:
    texts = [text] if isinstance(text, str) else text
    if not isinstance(texts, (list, tuple)) or not all(isinstance(own, str) for own in texts):
        raise BackendError(
            f"the backend gave {shown(text)} as the text; a str is allowed, for n > 1 a list of "
            "them."
        )
    metas = list(meta) if isinstance(meta, (list, tuple)) else [meta] * len(texts)
    if len(texts) != num_samples or len(metas) != num_samples:
        raise BackendError(
            f"{num_samples} samples were asked for; the backend returned {len(texts)} texts and "
            f"{len(metas)} meta_infos."
        )
    return tuple(
        Sample(text, None, _full_meta(own)) for text, own in zip(texts, metas, strict=True)
    )


def _usage(metas: Sequence[dict[str, Any]]) -> Usage:
    """What the backend tells about tokens; the prompt that samples share counts once."""
    num_prompt_tokens = metas[0]["prompt_tokens"] or 0
    num_cached_tokens = min(num_prompt_tokens, metas[0]["cached_tokens"] or 0)
    return Usage(
        calls=1,
        prompt_tokens=num_prompt_tokens,
        cached_tokens=num_cached_tokens,
        computed_tokens=num_prompt_tokens - num_cached_tokens,
        generated_tokens=sum(meta["completion_tokens"] or 0 for meta in metas),
    )


def as_reference_backend(backend: BaseBackend) -> ReferenceBackend:
    """The one adapter of a backend, so that its runs share what belongs to a backend."""
    with _lock:
        adapter = backend.__dict__.get("_espalier_adapter")
        if adapter is None:
            adapter = backend.__dict__["_espalier_adapter"] = ReferenceBackend(backend)
    assert isinstance(adapter, ReferenceBackend)
    return adapter
