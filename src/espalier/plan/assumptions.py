"""What a plan assumes of answers: their lengths in tokens, and texts where a program reads them.

Values for one name are taken in turn, and from the first again after the last. It must not know
tokenizers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from espalier.errors import UserInputError, shown
from espalier.types import whole_number

T = TypeVar("T", int, str)
DEFAULT_OUTPUT_TOKENS = 32  # of an answer of free text whose length nobody states
MAX_STATED_TOKENS = 1 << 20

Lengths = int | Mapping[str, int | Sequence[int]]
Texts = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Stated lengths and texts. Raises UserInputError for values that are none.

    Attributes:
        default_tokens: tokens of an answer of free text, its end token included.
        is_default_stated: false where `default_tokens` is the package's own.
        lengths: tokens of the answers of a variable, in turn.
        texts: answers of a variable, in turn; of a selection, the choice.
    """

    default_tokens: int = DEFAULT_OUTPUT_TOKENS
    is_default_stated: bool = False
    lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, output_tokens: Any = None, assume: Any = None) -> Assumptions:
        """From `output_tokens` (a number, or lengths by name; "*" is every other name's) and texts.

        A number stands for every answer of free text; a name's value is one or a list of them.
        """
        default: int | None = None
        lengths: dict[str, tuple[int, ...]] = {}
        if isinstance(output_tokens, Mapping):
            for name, value in output_tokens.items():
                numbers = tuple(_length(name, item) for item in _listed(name, value))
                if name == "*":
                    default = numbers[0]
                else:
                    lengths[_name("output_tokens", name)] = numbers
        elif output_tokens is not None:
            default = _length("*", output_tokens)
        if assume is not None and not isinstance(assume, Mapping):
            raise UserInputError(
                f"assume is {shown(assume)}; a dict from a variable's name to its text, or to a "
                "list of texts, is allowed."
            )
        texts = {
            _name("assume", name): tuple(_text(name, item) for item in _listed(name, value))
            for name, value in (assume or {}).items()
        }
        is_stated = default is not None
        return cls(DEFAULT_OUTPUT_TOKENS if default is None else default, is_stated, lengths, texts)

    @property
    def names(self) -> set[str]:
        """Variables for which something is stated."""
        return {*self.lengths, *self.texts}


def _name(what: str, name: Any) -> str:
    if isinstance(name, str) and name:
        return name
    raise UserInputError(f"{what} names {shown(name)}; the name of a variable is allowed.")


def _listed(name: Any, value: Any) -> Sequence[Any]:
    if isinstance(value, (list, tuple)):
        if not value:
            raise UserInputError(f"the list for {shown(name)} is empty; give at least one value.")
        return value
    return [value]


def _length(name: Any, value: Any) -> int:
    what = "the output length" if name == "*" else f"the output length of {shown(name)}"
    number = whole_number(what, value, UserInputError)
    if not 0 <= number <= MAX_STATED_TOKENS:
        raise UserInputError(f"{what} is {number}; 0 to {MAX_STATED_TOKENS:,} tokens are allowed.")
    return number


def _text(name: Any, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise UserInputError(f"the text assumed for {shown(name)} is {shown(value)}; text is allowed.")


class Turns:
    """Hands out the stated values of each name in turn, and notes which were used."""

    def __init__(self, assumptions: Assumptions) -> None:
        self.assumptions = assumptions
        self._next_length: dict[str, int] = {}
        self._next_text: dict[str, int] = {}
        self.used: set[str] = set()

    def length(self, name: str | None) -> int | None:
        """The next stated length of a variable, None where there is none."""
        return self._take(self.assumptions.lengths, self._next_length, name)

    def text(self, name: str | None) -> str | None:
        """The next stated text of a variable, None where there is none."""
        return self._take(self.assumptions.texts, self._next_text, name)

    def _take(
        self, values: Mapping[str, tuple[T, ...]], positions: dict[str, int], name: str | None
    ) -> T | None:
        if name is None or name not in values:
            return None
        self.used.add(name)
        index = positions.get(name, 0)
        positions[name] = index + 1
        return values[name][index % len(values[name])]
