"""Output that must be an int, a float, a bool or a string: the `dtype` of a generation.

The forms are those of SGLang's `gen(dtype=...)` in its four types; they differ where upstream's are
known to fail (see docs/sampling.md): any JSON string for "str", bounded digits, more ways to end a
number.
"""

from __future__ import annotations

import re

from espalier.errors import UserInputError

MAX_DIGITS = 40  # before and after the point; a 128-bit number has 39

# Characters that end a number. Those that may stand inside or before one are not among them:
# signs, and the separators that a model may put between thousands (comma, apostrophe, low line).
_NUMBER_ENDS = '\t\n\r !"#$%&()*/:;<=>?@[\\]^`{|}~'
_DIGITS = f"[0-9]{{1,{MAX_DIGITS}}}"

# What follows the end of a number is cut off (`dtype_stops`), so it may be anything: the model
# ends a number by going on with its text, which it does far more often than it ends the text.
_TAIL = r"(.|\n)*"


def _any_of(characters: str) -> str:
    return f"[{re.escape(characters)}]"


_INT = f"[-+]?{_DIGITS}({_any_of(_NUMBER_ENDS + '.')}{_TAIL})?"
_FLOAT = rf"[-+]?({_DIGITS}(\.{_DIGITS})?|\.{_DIGITS})(\.?{_any_of(_NUMBER_ENDS)}{_TAIL})?"

_HEX = "[0-9a-fA-F]"
# \u escapes: no surrogates but in pairs, so that the text is Unicode after json.loads as well.
_CODE_UNIT = f"(?:[0-9a-ce-fA-CE-F]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}})"
_SURROGATE_PAIR = rf"[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
_JSON_STRING = rf'"([^"\\\x00-\x1f]|\\(["\\/bfnrt]|u{_CODE_UNIT}|u{_SURROGATE_PAIR}))*"'

_PATTERNS = {"int": _INT, "float": _FLOAT, "bool": "True|False", "str": _JSON_STRING}
DTYPES = tuple(_PATTERNS)


def dtype_pattern(dtype: str) -> str:
    """The regular expression of a dtype: "int", "float", "bool" or "str" (a JSON string).

    For int and float it goes on after the number; the text is the number once `dtype_stops` has cut
    it. Raises UserInputError for any other dtype.
    """
    if dtype not in _PATTERNS:
        raise UserInputError(f"dtype is {dtype!r}; {', '.join(map(repr, DTYPES))} are allowed.")
    return _PATTERNS[dtype]


def dtype_stops(dtype: str | None) -> tuple[str, ...]:
    """Strings that end the text of a dtype and are never part of it; none but for int and float."""
    if dtype == "int":
        return tuple(_NUMBER_ENDS + ".")
    if dtype == "float":
        # A point is the end of a sentence where no digit follows.
        return (*_NUMBER_ENDS, *(f".{end}" for end in _NUMBER_ENDS))
    return ()
