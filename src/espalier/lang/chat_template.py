"""Chat templates by name and by model path: the reference's registry.

A model's own template comes first where there is one (`Backend.role_template`); what is here is for
backends that are no model, and for models that bring none.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

from espalier.backends.base import RoleTemplate
from espalier.errors import ChatTemplateError, UserInputError, shown
from espalier.lang.chat_format import ChatTemplate, ChatTemplateStyle
from espalier.lang.named_templates import NAMED_TEMPLATES, PATH_RULES

__all__ = [
    "ChatTemplate",
    "ChatTemplateStyle",
    "get_chat_template",
    "get_chat_template_by_model_path",
    "register_chat_template",
    "register_chat_template_matching_function",
    "template_for_model",
]

MatchingFunction = Callable[[str], ChatTemplate | None]
_templates: dict[str, ChatTemplate] = {template.name: template for template in NAMED_TEMPLATES}
_matching: list[MatchingFunction] = []
_warned: set[str] = set()
_lock = threading.Lock()


def register_chat_template(template: ChatTemplate) -> None:
    """Gives a template its name; an earlier one of that name is replaced."""
    if not isinstance(template, ChatTemplate):
        raise UserInputError(f"the template is {shown(template)}; a ChatTemplate is allowed.")
    _templates[template.name] = template


def register_chat_template_matching_function(func: MatchingFunction) -> MatchingFunction:
    """Asks a function of the model path before the built-in rules; usable as a decorator."""
    _matching.append(func)
    return func


def get_chat_template(name: str) -> ChatTemplate:
    """The template of that name; raises UserInputError where there is none."""
    try:
        return _templates[name]
    except (KeyError, TypeError):
        raise UserInputError(
            f"there is no chat template {shown(name)}; there are {', '.join(sorted(_templates))}. "
            "register_chat_template adds one."
        ) from None


def matching_template(model_path: str) -> ChatTemplate | None:
    """The template that the model path names by its parts, or None; raises UserInputError."""
    if not isinstance(model_path, str):
        raise UserInputError(f"the model path is {shown(model_path)}; a text is allowed.")
    for function in reversed(_matching):
        found = function(model_path)
        if found is not None:
            return found
    path = model_path.lower()
    for name, needed, excluded in PATH_RULES:
        if all(part in path for part in needed) and not any(part in path for part in excluded):
            return get_chat_template(name)
    return None


def get_chat_template_by_model_path(model_path: str) -> ChatTemplate:
    """The template that fits the path; `default` where none does, with one warning per path."""
    return _by_path(model_path, "no chat template is known for it")


def _by_path(model_path: str, why: str) -> ChatTemplate:
    found = matching_template(model_path)
    if found is not None:
        return found
    with _lock:
        is_first = model_path not in _warned
        _warned.add(model_path)
    if is_first:
        warnings.warn(
            f"roles are written as 'USER:' and 'ASSISTANT:' lines, without a stop, for the model "
            f"{model_path!r}: {why}. If it was made for another format, "
            "espalier.lang.chat_template.register_chat_template gives it that one.",
            stacklevel=3,
        )
    return get_chat_template("default")


def template_for_model(model_path: str, own: Callable[[], RoleTemplate]) -> RoleTemplate:
    """The model's own template, which `own` gives or raises ChatTemplateError; else by the path."""
    try:
        return own()
    except ChatTemplateError as error:
        return _by_path(model_path, str(error).rstrip("."))
