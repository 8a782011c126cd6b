"""Chat templates: messages to text, and the text around one message.

A template is a function of a whole list of messages; a program writes one message after the other.
The text around each message is found by rendering lists whose contents are marks, and looking at
what is between the marks. Where a template shows earlier messages differently later on, no such
text exists, and an error says so. Contents are never part of what is cached.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from espalier.errors import ChatTemplateError
from espalier.tokenizer.family_templates import FAMILY_TEMPLATES, FamilyTemplate
from espalier.tokenizer.template_sandbox import TemplateSandbox
from espalier.tokenizer.tokenizer import Tokenizer

Message = Mapping[str, Any]  # {"role": str, "content": str}
_CACHED_BLOCKS = 512
_MAX_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class _Block:
    """Text around the last message of a list, and the list as later messages find it."""

    opening: str
    closing: str
    rendered: str  # the whole list with marks for contents, closing included


class ChatTemplate:
    """A chat template with the text around single messages. Safe to share between threads.

    Contents go into role blocks as the program writes them: where the template trims a message,
    a role block does not.

    Attributes:
        name: where the template comes from: "file", or the name of a fallback.
    """

    def __init__(self, source: str, *, name: str, tokenizer: Tokenizer) -> None:
        self.name = name
        self._tokenizer = tokenizer
        # One moment for all renderings: a date in a template must not change between turns.
        self._sandbox = TemplateSandbox(datetime.now())
        self._template = self._sandbox.compiled(source)
        self._variables = _variables(tokenizer)
        self._knows_prompt = "add_generation_prompt" in source
        self._blocks: OrderedDict[tuple[str, ...], _Block] = OrderedDict()
        self._lock = threading.Lock()
        self._stop: tuple[str, ...] | None = None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool = False) -> str:
        """The text of a whole conversation, as the template writes it.

        `add_generation_prompt`: ends with what comes before an assistant's answer. Tokenise the
        text with `allow_special=True`. Raises ChatTemplateError where it does not render.
        """
        for message in messages:
            if not isinstance(message.get("role"), str) or "content" not in message:
                raise ChatTemplateError(
                    f"a message is {message!r}; a role (text) and a content are needed."
                )
        variables = {
            **self._variables,
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
        }
        return self._sandbox.render(self._template, variables)

    @property
    def stop(self) -> tuple[str, ...]:
        """Strings that end an assistant's message, where it is not a token that ends it.

        Raises ChatTemplateError where the template takes no assistant message after a user's.
        """
        if self._stop is None:
            before: tuple[str, ...] = ("user",)
            try:
                self._block(before)
            except ChatTemplateError:
                before = ("system", "user")
            closing = self._block((*before, "assistant")).closing.strip()
            if not closing:  # then the beginning of the next turn is the end of this one
                closing = self._block((*before, "assistant", "user")).opening.strip()
            self._stop = self._stop_strings(closing)
        return self._stop

    def _stop_strings(self, closing: str) -> tuple[str, ...]:
        first = self._tokenizer.encode(closing, allow_special=True, add_bos=False)[:1]
        if not first or first[0] in self._tokenizer.eos_ids:
            return ()
        is_control = self._tokenizer.is_control(first[0])
        return (self._tokenizer.token_text(first[0]) if is_control else closing,)

    def opening(self, role: str, history: Sequence[Message]) -> str:
        """Text before a message of `role` that comes after `history`.

        Raises ChatTemplateError for a role or an order that the template does not take, and for
        a template that changes earlier messages when later ones come.
        """
        return self._block(_roles(role, history)).opening

    def closing(self, role: str, history: Sequence[Message]) -> str:
        """Text after a message of `role` that comes after `history`; raises as `opening`."""
        return self._block(_roles(role, history)).closing

    def _block(self, roles: tuple[str, ...]) -> _Block:
        """The block of the last of `roles`; blocks of earlier ones that are missing are made."""
        with self._lock:
            known = len(roles)
            while known and roles[:known] not in self._blocks:
                known -= 1
            before = ""
            if known:
                self._blocks.move_to_end(roles[:known])
                before = self._blocks[roles[:known]].rendered
            for count in range(known + 1, len(roles) + 1):
                block = self._make_block(roles[:count], before)
                self._blocks[roles[:count]] = block
                if len(self._blocks) > _CACHED_BLOCKS:
                    self._blocks.popitem(last=False)
                before = block.rendered
            return self._blocks[roles]

    def _make_block(self, roles: tuple[str, ...], before: str) -> _Block:
        if roles[-1] == "assistant" and len(roles) > 1:
            return self._assistant_block(roles, before)
        error = _not_incremental(roles)
        try:
            block = _split(self._render_marks(roles), roles, before)
        except ChatTemplateError as raised:
            block, error = None, raised
        if block is None and roles[-1] == "system":
            # Some templates show the system's message only as a part of the user's.
            block = _split(self._render_marks((*roles, "user")), roles, before)
            block = block and _Block(block.opening, "", before + block.opening + _mark(len(roles)))
        if block is None:
            raise error
        return block

    def _assistant_block(self, roles: tuple[str, ...], before: str) -> _Block:
        """The block whose opening is the prompt for a generation.

        The message is looked at in two forms, as the last one and followed by another: some
        templates add to the last (an empty reasoning part) what a later turn does not show.
        """
        last = _split(self._render_marks(roles), roles, before)
        if last is None:
            raise _not_incremental(roles)
        if not self._knows_prompt:
            # The model writes the space before its answer itself.
            return _Block(last.opening.rstrip(" "), last.closing, last.rendered)
        prompt = self._render_marks(roles[:-1], add_generation_prompt=True)
        if not prompt.startswith(before):
            raise _not_incremental(roles)
        prompt = prompt[len(before) :]
        if _agree(last.opening, prompt):
            return _Block(prompt, last.closing, last.rendered)
        followed = _split(self._render_marks((*roles, "user")), roles, before)
        if followed is None or not _agree(followed.opening, prompt):
            shown = (followed or last).opening
            raise ChatTemplateError(
                f"the chat template opens an assistant's message with {shown!r}, but asks for one "
                f"with {prompt!r}: a message would change after it was generated, and role blocks "
                "cannot do that. Use a raw prompt, or give another template."
            )
        if not followed.closing.startswith(last.closing):
            raise _not_incremental(roles)
        rendered = before + followed.opening + _mark(len(roles)) + last.closing
        return _Block(prompt, last.closing, rendered)

    def _render_marks(self, roles: Sequence[str], add_generation_prompt: bool = False) -> str:
        messages = [
            {"role": role, "content": _mark(count)} for count, role in enumerate(roles, start=1)
        ]
        return self.render(messages, add_generation_prompt)


def role_template(tokenizer: Tokenizer, *, source: str | None, family: str) -> ChatTemplate:
    """The chat template of a model.

    `source` is the template of the model's file. Where it is None, a template is chosen by the
    control tokens of the vocabulary and by `family`, the architecture's name (such as "llama",
    "qwen2", "gemma3", "mistral"). Raises ChatTemplateError where none fits.
    """
    if source is not None and source.strip():
        return ChatTemplate(source, name="file", tokenizer=tokenizer)
    for template in FAMILY_TEMPLATES:
        if _fits(template, tokenizer, family):
            return ChatTemplate(template.source, name=template.name, tokenizer=tokenizer)
    needed = ", ".join(sorted({" ".join(template.tokens) for template in FAMILY_TEMPLATES}))
    raise ChatTemplateError(
        f"the model (of the family {family!r}) has no chat template, and its vocabulary has the "
        f"control tokens of none that is known ({needed}). It is probably not a chat model: "
        "use raw prompts without roles, or give a template."
    )


def _fits(template: FamilyTemplate, tokenizer: Tokenizer, family: str) -> bool:
    if template.families and not family.lower().startswith(template.families):
        return False
    ids = [tokenizer.token_id(text) for text in template.tokens]
    return all(token_id is not None and tokenizer.is_control(token_id) for token_id in ids)


def _variables(tokenizer: Tokenizer) -> dict[str, Any]:
    """What a template may read besides the messages; names that have no token are not set."""
    eos_id = tokenizer.eos_id
    named = {
        "bos_token": tokenizer.bos_id,
        "eos_token": eos_id,
        "pad_token": tokenizer.pad_id,
        "unk_token": tokenizer.unk_id,
    }
    texts = tokenizer.vocabulary.texts
    variables: dict[str, Any] = {
        name: texts[token_id] for name, token_id in named.items() if token_id is not None
    }
    return {"tools": None, "documents": None, **variables}


def _roles(role: str, history: Sequence[Message]) -> tuple[str, ...]:
    if len(history) >= _MAX_MESSAGES:
        raise ChatTemplateError(
            f"the conversation has {len(history)} messages; up to {_MAX_MESSAGES} are allowed."
        )
    return (*(str(message["role"]) for message in history), role)


def _mark(count: int) -> str:
    """Content of the message number `count` in a rendering: survives trimming and JSON."""
    return f"Content{count:06d}OfEspalier"


def _split(rendered: str, roles: tuple[str, ...], before: str) -> _Block | None:
    """The block of the last of `roles` in a rendering that may go on after it.

    None where the rendering does not begin with `before`, or does not show the content once.
    """
    mark = _mark(len(roles))
    if not rendered.startswith(before) or rendered.count(mark) != 1:
        return None
    start = rendered.index(mark)
    if start < len(before):
        return None
    return _Block(rendered[len(before) : start], rendered[start + len(mark) :], rendered)


def _agree(shown: str, prompt: str) -> bool:
    """Whether a message's opening is the prompt for it, but for space at the end.

    Such a space ([/INST] of Llama 2) is written by the model itself.
    """
    return shown == prompt or shown.rstrip(" ") == prompt.rstrip(" ")


def _not_incremental(roles: Sequence[str]) -> ChatTemplateError:
    return ChatTemplateError(
        f"the chat template does not show the messages {', '.join(roles)} one after the other: it "
        "leaves out the last one, shows it twice, or changes earlier ones when it comes. Role "
        "blocks cannot do that. Use a raw prompt, or give another template."
    )
