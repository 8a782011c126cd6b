"""StreamExecutor: a state as the reference's backends see it.

Plain data in the reference's names. The states of programs are `lang/stream.py`; this is what a
backend that was written for the reference gets as `s`, made anew for each call.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import Any

from espalier.errors import UnsupportedError, UserInputError
from espalier.lang import reasoning_format
from espalier.lang.ir import SglSeparateReasoning


class StreamExecutor:
    """The prompt of a call, and the messages in it.

    Attributes:
        text_: the whole prompt.
        messages_: closed messages in OpenAI's form; a default system message is among them.
        cur_role: the open role, or None; cur_role_begin_pos: where its text begins in `text_`.
        variables, variable_event, meta_info: by name; of a call they are empty.
        images_, cur_images: always empty, as there are no images yet.
        sid: a text that the calls of one state share.
        backend, arguments, default_sampling_para, chat_template, stream, num_api_spec_tokens: as
            given.

    It runs no program and has no queue: `use_thread` must be False, and it takes nothing in.
    """

    def __init__(  # noqa: PLR0917 - the reference's order
        self,
        backend: Any,
        arguments: Mapping[str, Any],
        default_sampling_para: Any,
        chat_template: Any = None,
        stream: bool = False,
        num_api_spec_tokens: int | None = None,
        use_thread: bool = True,
    ) -> None:
        if use_thread:
            raise UserInputError(
                "StreamExecutor has use_thread=True; False is allowed, as the states of programs "
                "run elsewhere. Use espalier.function to run a program."
            )
        self.sid = uuid.uuid4().hex
        self.backend = backend
        self.arguments = dict(arguments)
        self.default_sampling_para = default_sampling_para
        self.chat_template = backend.get_chat_template() if chat_template is None else chat_template
        self.stream = stream
        self.num_api_spec_tokens = num_api_spec_tokens
        self.use_thread = False
        self.variables: dict[str, Any] = {}
        self.variable_event: dict[str, threading.Event] = {}
        self.meta_info: dict[str, Any] = {}
        self.text_ = ""
        self.messages_: list[dict[str, Any]] = []
        self.images_: list[Any] = []
        self.cur_images: list[Any] = []
        self.cur_role: str | None = None
        self.cur_role_begin_pos: int | None = None
        self.is_finished = False
        self.error_: BaseException | None = None
        self.speculated_text = ""

    def text(self) -> str:
        """The whole prompt."""
        return self.text_

    def messages(self) -> list[dict[str, Any]]:
        """The closed messages."""
        return self.messages_

    def get_var(self, name: str) -> Any:
        """A variable."""
        return self.variables[name]

    def set_var(self, name: str, value: Any) -> None:
        """Sets a variable."""
        self.variables[name] = value

    def get_meta_info(self, name: str) -> Any:
        """The meta_info of a variable, or None."""
        return self.meta_info.get(name)

    def sync(self) -> None:
        """Returns at once: nothing is queued."""

    def submit(self, expr: object) -> None:
        """Raises UnsupportedError: append to the state of a program."""
        raise UnsupportedError(
            f"{expr!r} was submitted to a StreamExecutor, which holds the prompt of one call; "
            "append to the program's state (s += ...) instead."
        )

    def _execute_separate_reasoning(self, other: SglSeparateReasoning) -> None:
        """Splits the variables of the expression that are set, and the text that ends in them."""
        parser = reasoning_format.ReasoningParser(other.model_type)
        for gen in other.gens():
            assert gen.name is not None
            full = self.variables[gen.name]
            reasoning, answer = parser.parse_non_stream(full)
            name = other.process_name_for_reasoning(gen.name)
            start = self.text_.rfind(full, self.cur_role_begin_pos or 0)
            if full and start >= 0:
                self.text_ = self.text_[:start] + answer + self.text_[start + len(full) :]
            self.variables.update({gen.name: answer, name: reasoning})
            self.variable_event.setdefault(name, threading.Event()).set()
