"""A chat template as text around each message: the reference's form, for templates with a name.

A model's own template is a Jinja program and belongs to the tokenizer; this file knows neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from espalier.errors import ChatTemplateError, UserInputError, shown

Affixes = tuple[str, str]  # text before and after a message
Messages = Sequence[Mapping[str, Any]]  # {"role": str, "content": str}


class ChatTemplateStyle(Enum):
    """PLAIN: messages one after the other. LLAMA2: a first system message begins the user's."""

    PLAIN = auto()
    LLAMA2 = auto()


@dataclass(frozen=True)
class ChatTemplate:
    """Text around the messages of a chat, by role. It is a `backends.base.RoleTemplate` too.

    Attributes:
        name: by which `get_chat_template` finds it.
        default_system_prompt: what stands for a system message where a chat begins without one;
            None for nothing.
        role_prefix_and_suffix: text before and after a message, by role.
        stop_str: strings that end an assistant's message.
        image_token, audio_token: text that stands for an image or a sound.
        style: see ChatTemplateStyle.

    Raises UserInputError for roles that are not pairs of texts.
    """

    name: str
    default_system_prompt: str | None
    role_prefix_and_suffix: Mapping[str, Affixes]
    stop_str: Sequence[str] = ()
    image_token: str = "<image>"
    audio_token: str = "<audio>"
    style: ChatTemplateStyle = ChatTemplateStyle.PLAIN

    def __post_init__(self) -> None:
        if not isinstance(self.role_prefix_and_suffix, Mapping):
            raise UserInputError(
                f"chat template {self.name!r} has {shown(self.role_prefix_and_suffix)} as its "
                "roles; a dict from a role to a text before and a text after each message is "
                "allowed."
            )
        for role, pair in self.role_prefix_and_suffix.items():
            is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
            if not is_pair or not all(isinstance(part, str) for part in pair):
                raise UserInputError(
                    f"chat template {self.name!r} has {shown(pair)} for the role {role!r}; a text "
                    "before and a text after each message are allowed."
                )
        if isinstance(self.stop_str, str):
            object.__setattr__(self, "stop_str", (self.stop_str,))

    def get_prefix_and_suffix(self, role: str, hist_messages: Messages) -> Affixes:
        """Text before and after a message of `role` that comes after `hist_messages`.

        Raises ChatTemplateError for a role that the template does not have.
        """
        prefix, suffix = self._affixes(role)
        if self.style is ChatTemplateStyle.LLAMA2:
            if role == "system" and not hist_messages:
                return self._affixes("user")[0] + prefix, suffix
            begun = [item["role"] for item in hist_messages if item["content"] is not None]
            if role == "user" and begun == ["system"]:
                return "", suffix
        return prefix, suffix

    def _affixes(self, role: str) -> Affixes:
        try:
            prefix, suffix = self.role_prefix_and_suffix[role]
        except KeyError:
            known = ", ".join(self.role_prefix_and_suffix)
            raise ChatTemplateError(
                f"chat template {self.name!r} has no role {role!r}; it has {known}."
            ) from None
        return prefix, suffix

    def get_prompt(self, messages: Messages) -> str:
        """The text of a conversation. A first system message of None is the default one."""
        shown: list[Mapping[str, Any]] = []
        parts: list[str] = []
        for message in messages:
            role, content = message["role"], message["content"]
            if content is None and role == "system":
                content = self.default_system_prompt
                if content is None:
                    continue
            prefix, suffix = self.get_prefix_and_suffix(role, shown)
            parts.append(f"{prefix}{content}{suffix}")
            shown.append({"role": role, "content": content})
        return "".join(parts)

    # backends.base.RoleTemplate

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end an assistant's message."""
        return tuple(self.stop_str)

    def with_default(self, messages: Messages, next_role: str | None = None) -> Messages:
        """The messages, behind the default system message where the chat begins without one.

        `next_role` is the role of the message that is to come after them, if any.
        """
        roles = [message["role"] for message in messages] + ([next_role] if next_role else [])
        if self.default_system_prompt is None or not roles or roles[0] == "system":
            return messages
        return [{"role": "system", "content": self.default_system_prompt}, *messages]

    def opening(self, role: str, history: Messages) -> str:
        """Text before a message, with the default system message where it is the first."""
        full = self.with_default(history, role)
        prefix, _ = self.get_prefix_and_suffix(role, full)
        return prefix if history else self.get_prompt(full) + prefix

    def closing(self, role: str, history: Messages) -> str:
        """Text after a message."""
        return self.get_prefix_and_suffix(role, self.with_default(history, role))[1]
