"""Tables of API prices: JSON files that a user copies and edits. The package's own is an example.

It must not know what is priced.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from espalier.errors import UserInputError, shown

MAX_MODELS = 100
_TABLE_KEYS = {"note", "currency", "date", "per_tokens", "models"}
_PRICE_KEYS = ("input", "cached_input", "output")


@dataclass(frozen=True, slots=True)
class ModelPrice:
    """Prices of one model, for one token each."""

    name: str
    input: float
    cached_input: float
    output: float

    def price(self, computed: int, cached: int, generated: int) -> float:
        """Price of prompt tokens that are new, of those that are cached, and of an output."""
        return computed * self.input + cached * self.cached_input + generated * self.output


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices of some models, as of a date."""

    source: str
    currency: str
    date: str
    models: tuple[ModelPrice, ...]


def read_prices(path: str | Path | None = None) -> PriceTable:
    """A table from a JSON file, None for the example; raises UserInputError.

    {"currency": "USD", "date": "2025-05-01", "per_tokens": 1000000, "models": {"NAME": {"input":
    2.5, "cached_input": 1.25, "output": 10.0}}}; "note" is for readers. A model without
    "cached_input" has no discount.
    """
    if path is None:
        text = files("espalier.plan").joinpath("prices.json").read_text(encoding="utf-8")
        return _table(text, "the example table")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserInputError(f"the price table {path} cannot be read: {error}.") from error
    return _table(text, str(path))


def _table(text: str, source: str) -> PriceTable:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserInputError(f"{source} is not JSON: {error}.") from None
    if not isinstance(value, dict) or not isinstance(value.get("models"), dict):
        raise UserInputError(f'{source} is no price table; an object with "models" is allowed.')
    _refuse_unknown(source, value, _TABLE_KEYS)
    models = value["models"]
    if not 1 <= len(models) <= MAX_MODELS:
        raise UserInputError(f"{source} has {len(models)} models; 1 to {MAX_MODELS} are allowed.")
    unit = _number(source, "per_tokens", value.get("per_tokens", 1_000_000))
    if unit <= 0:
        raise UserInputError(f"{source}: per_tokens is {unit}; more than 0 is allowed.")
    return PriceTable(
        source,
        str(value.get("currency", "USD")),
        str(value.get("date", "unknown date")),
        tuple(_model(source, name, prices, unit) for name, prices in models.items()),
    )


def _model(source: str, name: str, prices: Any, unit: float) -> ModelPrice:
    if not isinstance(prices, dict) or not {"input", "output"} <= set(prices):
        raise UserInputError(
            f'{source}: the prices of {name!r} are {shown(prices)}; "input" and "output", and '
            'perhaps "cached_input", are needed.'
        )
    _refuse_unknown(f"{source}: {name!r}", prices, set(_PRICE_KEYS))
    numbers = {key: _number(source, f"{name}.{key}", value) for key, value in prices.items()}
    numbers.setdefault("cached_input", numbers["input"])
    return ModelPrice(name, *(numbers[key] / unit for key in _PRICE_KEYS))


def _number(source: str, name: str, value: Any) -> float:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise UserInputError(f"{source}: {name} is {shown(value)}; a number from 0 is allowed.")
    return float(value)


def _refuse_unknown(source: str, value: Mapping[str, Any], allowed: set[str]) -> None:
    unknown = sorted(set(value) - allowed)
    if unknown:
        raise UserInputError(
            f"{source} has {', '.join(map(repr, unknown))}, which is not known; "
            f"{', '.join(sorted(allowed))} are allowed."
        )
