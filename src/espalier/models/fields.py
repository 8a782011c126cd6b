"""Typed reading of a model's configuration, whether it came from GGUF metadata or config.json.

Knows keys and value types. It remembers which keys were read, so that a caller can refuse a
configuration that holds more than it honours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from espalier.errors import ModelFileError, UnsupportedError


class Fields:
    """The values of a configuration below a key prefix. A null value counts as absent.

    Every reader raises ModelFileError where the key is absent and no default is given, or the value
    has another type, naming the place and the key.
    """

    def __init__(self, values: Mapping[str, object], where: str, prefix: str = "") -> None:
        self.where = where
        self._prefix = prefix
        self._values = {
            key.removeprefix(prefix): value
            for key, value in values.items()
            if key.startswith(prefix) and value is not None
        }
        self._nulls = {key.removeprefix(prefix) for key, value in values.items() if value is None}
        self._read: set[str] = set()

    def is_null(self, key: str) -> bool:
        """True where the key is given, and its value is null."""
        return key in self._nulls

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def raw(self, key: str) -> object:
        """The value as it is, or None."""
        self._read.add(key)
        return self._values.get(key)

    def whole(self, key: str, default: int | None = None) -> int:
        """A whole number of 0 or more; a list of equal numbers (one per layer) counts as one."""
        value = self._value(key, default)
        if isinstance(value, list) and value:
            if any(entry != value[0] for entry in value):
                raise UnsupportedError(
                    f"{self._named(key)} differs between layers ({_short(value)}); one value for "
                    "all layers is supported."
                )
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(key, value, "a whole number of 0 or more")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._value(key, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):  # type: ignore[arg-type]
            raise self._wrong(key, value, "a finite number")
        return float(value)  # type: ignore[arg-type]

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.number(key, default)
        if value <= 0:
            raise self._wrong(key, value, "a number above 0")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def part(self, key: str) -> Fields | None:
        """The fields of a nested object, or None where the key is absent."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, value, "an object")
        return Fields(value, self._named(key))

    def unread(self) -> dict[str, object]:
        """The values that nothing has read."""
        return {key: value for key, value in self._values.items() if key not in self._read}

    def refuse_unread(self) -> None:
        """Raises UnsupportedError where a value has not been read."""
        left = [f"{self._prefix}{key} = {_short(value)}" for key, value in self.unread().items()]
        if left:
            raise UnsupportedError(
                f"{self.where} has settings that are not supported: {', '.join(left)}."
            )

    def _value(self, key: str, default: object) -> object:
        value = self.raw(key)
        if value is None:
            value = default
        if value is None:
            raise ModelFileError(f"{self.where} has no {self._prefix}{key}, which a model needs.")
        return value

    def _named(self, key: str) -> str:
        return f"{self._prefix}{key} of {self.where}"

    def _wrong(self, key: str, value: object, allowed: str) -> ModelFileError:
        return ModelFileError(f"{self._named(key)} is {_short(value)}; it must be {allowed}.")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
