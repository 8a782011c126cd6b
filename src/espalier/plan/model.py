"""What a plan needs of a model: its tokenizer, template and limits. No weights are unpacked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from espalier.backends.base import RoleTemplate
from espalier.engine.pool_size import default_pool_size
from espalier.errors import ChatTemplateError
from espalier.exec.factory import slot_bytes
from espalier.exec.memory import available_bytes
from espalier.loaders.model import LoadedModel, load_model
from espalier.loaders.resolve import resolve_model
from espalier.settings import default_model
from espalier.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class PlannedModel:
    """The parts of a model that decide what a request costs.

    Attributes:
        vocab_size: width of the model's logits.
        max_context: tokens that the model was made for.
        pool_size: token slots that an engine of this machine would have for it.
    """

    name: str
    tokenizer: Tokenizer
    template: RoleTemplate | ChatTemplateError
    vocab_size: int
    max_context: int
    pool_size: int


def load_planned_model(model: str | Path | None) -> PlannedModel:
    """Opens a model as `Engine` would, None for the default one; raises what it raises."""
    loaded = load_model(resolve_model(model), name=_report_name(model))
    geometry = loaded.plan.geometry
    return PlannedModel(
        loaded.name,
        loaded.tokenizer,
        _template(loaded),
        geometry.vocab_size,
        geometry.max_context,
        default_pool_size(slot_bytes("native", geometry, "auto", "auto"), available_bytes()),
    )


def _report_name(model: str | Path | None) -> str | None:
    name = default_model() if model is None else str(model)
    return None if isinstance(model, Path) or Path(name).expanduser().exists() else name


def _template(loaded: LoadedModel) -> RoleTemplate | ChatTemplateError:
    try:
        return loaded.role_template()
    except ChatTemplateError as error:
        return error
