"""BaseBackend: what a user's own backend in the reference's form derives from.

Given as `backend=`, an instance runs through `reference_backend.ReferenceBackend`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from espalier.errors import UnsupportedError
from espalier.lang.chat_template import ChatTemplate, get_chat_template
from espalier.lang.choices import ChoicesDecision
from espalier.lang.executor import StreamExecutor
from espalier.lang.reference_sampling import SglSamplingParams


class BaseBackend:
    """A backend with blocking methods. Override what it can do; the rest raises UnsupportedError.

    Methods are called from up to 64 threads at once, and those of a backend that is called inside
    a method of another one from 64 more. A bare instance runs no call, but programs
    can be traced and compiled on it.

    Attributes:
        is_chat_model: `generate` reads `s.messages_` and not `s.text_`.
        supports_prefill: a chat model whose answer goes on from the text of the open message,
            `s.text_[s.cur_role_begin_pos:]`. Without it, such text raises before the call.
        support_concate_and_append: False; texts are put together, never caches.
        chat_template: text around roles.
    """

    is_chat_model = False
    supports_prefill = False
    # Of the class too, for backends whose __init__ does not call this one.
    support_concate_and_append = False
    chat_template: ChatTemplate = get_chat_template("default")

    def __init__(self) -> None:
        self.support_concate_and_append = False
        self.chat_template = get_chat_template("default")

    def get_model_name(self) -> str:
        """Name of the model, for reports; that of the class unless overridden."""
        return type(self).__name__

    def get_chat_template(self) -> ChatTemplate:
        """The chat template."""
        return self.chat_template

    def generate(self, s: StreamExecutor, sampling_params: SglSamplingParams) -> tuple[Any, Any]:
        """The text that continues `s` and its meta_info; for n > 1 a list of texts."""
        raise UnsupportedError(f"{type(self).__name__} has no generate; override it.")

    def generate_stream(
        self, s: StreamExecutor, sampling_params: SglSamplingParams
    ) -> Iterator[tuple[str, Any]]:
        """New pieces of the text, each with the meta_info so far."""
        raise UnsupportedError(f"{type(self).__name__} has no generate_stream; override it.")

    def select(
        self,
        s: StreamExecutor,
        choices: Sequence[str],
        temperature: float,
        choices_method: Callable[..., Any] | None = None,
    ) -> ChoicesDecision:
        """Which of the choices continues `s`."""
        raise UnsupportedError(f"{type(self).__name__} has no select; override it.")

    def cache_prefix(self, prefix_str: str) -> None:
        """Computes a prompt that many programs begin with; a hint."""

    def begin_program(self, s: StreamExecutor) -> None:
        """A program begins."""

    def end_program(self, s: StreamExecutor) -> None:
        """A program's body has ended; its last calls may still run."""

    def commit_lazy_operations(self, s: StreamExecutor) -> None:
        """Computes the prompt `s`, which several forks are about to share; a hint."""

    def fill_image(self, s: StreamExecutor) -> None:
        """Images, which there are none of yet."""

    def concatenate_and_append(self, src_rids: Sequence[str], dst_rid: str) -> None:
        """Puts caches together; never called, as `support_concate_and_append` is not used."""
        raise UnsupportedError("caches of forks are not put together; their texts are.")

    def flush_cache(self) -> Any:
        """Empties the prefix cache; False says that it could not."""

    def get_server_info(self) -> Any:
        """What the backend runs; JSON values."""

    def shutdown(self) -> None:
        """Ends the backend."""
