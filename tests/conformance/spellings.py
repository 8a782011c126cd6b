"""Values as the JSON texts that a schema's pattern may have for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice, permutations, product
from typing import Any

from espalier.constraint import JsonWhitespace

MAX_ORDERS = 120  # of the keys of one object: all of those with up to five
MAX_TEXTS = 200

_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in (*range(0x20), 0x22, 0x5C)}


def spellings(
    value: Any, whitespace: JsonWhitespace = JsonWhitespace.COMPACT, depth: int = 0
) -> Iterator[str]:
    """JSON texts of a value in every order of keys, up to a limit; all else is canonical."""
    if isinstance(value, str):
        yield string_text(value)
    elif isinstance(value, Decimal):
        yield format(value, "f")
    elif isinstance(value, list):
        parts = product(*(_few(item, whitespace, depth + 1) for item in value))
        for items in islice(parts, MAX_TEXTS):
            yield _joined("[]", items, whitespace, depth)
    elif isinstance(value, dict):
        colon = ":" if whitespace is JsonWhitespace.COMPACT else ": "
        texts = {name: _few(item, whitespace, depth + 1) for name, item in value.items()}
        for names in islice(permutations(value), MAX_ORDERS):
            for items in islice(product(*(texts[name] for name in names)), MAX_TEXTS):
                members = (string_text(n) + colon + i for n, i in zip(names, items, strict=True))
                yield _joined("{}", tuple(members), whitespace, depth)
    else:
        yield json.dumps(value)


def string_text(text: str) -> str:
    """A string as JSON text, escaped only where it must be."""
    return f'"{text.translate(_ESCAPES)}"'


def _few(value: Any, whitespace: JsonWhitespace, depth: int) -> list[str]:
    return list(islice(spellings(value, whitespace, depth), MAX_TEXTS))


def _joined(brackets: str, parts: tuple[str, ...], whitespace: JsonWhitespace, depth: int) -> str:
    if not parts:
        return brackets
    comma = ", " if whitespace is JsonWhitespace.SPACED else ","
    if whitespace is not JsonWhitespace.PRETTY:
        return brackets[0] + comma.join(parts) + brackets[1]
    inner, outer = "\n" + "  " * (depth + 1), "\n" + "  " * depth
    return brackets[0] + inner + (comma + inner).join(parts) + outer + brackets[1]
